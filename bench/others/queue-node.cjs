// Runs one round of a Node queue on PostgreSQL: adds items, then takes and completes them. Prints the items per second.
//
//   NODE_PATH=.../node_modules node queue-node.cjs graphile-worker|pg-boss URL WORKERS BATCH ITEMS
'use strict';

const [, , name, url, ...numbers] = process.argv;
const [workers, batch, items] = numbers.map(Number);
const queue = 'noop';

// Calls `call` with the size of each batch until all items are covered, with this many calls at a time.
async function inBatches(concurrency, count, call) {
  let remaining = count;
  const loop = async () => {
    while (remaining > 0) {
      const size = Math.min(batch, remaining);
      remaining -= size;
      await call(size);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, loop));
}

async function graphile() {
  const { run, makeWorkerUtils, Logger } = require('graphile-worker');
  const logger = new Logger(() => () => {});
  const preset = {
    worker: {
      connectionString: url,
      maxPoolSize: workers + 4,
      concurrentJobs: workers,
      // With batches: use the local queue and write completions together.
      ...(batch > 1 ? { concurrentJobs: batch, localQueue: { size: batch * workers }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {}),
    },
  };
  const utils = await makeWorkerUtils({ preset, logger });
  await utils.migrate();
  const add = (count) =>
    inBatches(workers, count, (size) =>
      batch === 1
        ? utils.addJob(queue, {})
        : utils.addJobs(Array.from({ length: size }, () => ({ identifier: queue, payload: {} }))),
    );
  const work = async (count) => {
    let done = 0;
    const { EventEmitter } = require('node:events');
    const events = new EventEmitter();
    const all = new Promise((resolve) => events.on('job:complete', () => ++done === count && resolve()));
    const start = performance.now();
    const runner = await run({ preset, logger, events, noHandleSignals: true, taskList: { [queue]: async () => {} } });
    await all;
    const took = performance.now() - start;
    await runner.stop();
    return took;
  };
  return { add, work, end: () => utils.release() };
}

async function pgBoss() {
  const PgBoss = require('pg-boss');
  const boss = new PgBoss({ connectionString: url, max: workers, supervise: false, schedule: false });
  await boss.start();
  await boss.createQueue(queue);
  const add = (count) =>
    inBatches(workers, count, (size) =>
      batch === 1 ? boss.send(queue, {}) : boss.insert(Array.from({ length: size }, () => ({ name: queue, data: {} }))),
    );
  // The library's own worker polls every half second. Fetching directly avoids that delay.
  const work = async (count) => {
    const start = performance.now();
    await inBatches(workers, count, async (size) => {
      const jobs = await boss.fetch(queue, { batchSize: size });
      if (jobs.length > 0) await boss.complete(queue, jobs.map((job) => job.id));
    });
    return performance.now() - start;
  };
  return { add, work, end: () => boss.stop({ graceful: false }) };
}

async function main() {
  const queueUnderTest = await (name === 'pg-boss' ? pgBoss() : graphile());
  // The first items are a warm-up.
  const first = Math.max(batch * workers, Math.round(items / 10));
  await queueUnderTest.add(first);
  await queueUnderTest.work(first);
  const start = performance.now();
  await queueUnderTest.add(items);
  const added = performance.now() - start;
  const worked = await queueUnderTest.work(items);
  console.log(Math.round(items / ((added + worked) / 1000)));
  await queueUnderTest.end();
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
