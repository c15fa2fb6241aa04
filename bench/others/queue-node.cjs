// One round of a queue for Node on PostgreSQL: items are added, then taken and completed. Prints the items per second.
//
//   NODE_PATH=.../node_modules node queue-node.cjs graphile-worker|pg-boss URL WORKERS BATCH ITEMS
'use strict';

const [, , name, url, ...numbers] = process.argv;
const [workers, batch, items] = numbers.map(Number);
const queue = 'noop';

// Calls as many times as there are items, a batch at a time, from so many places at once.
async function at(places, count, call) {
  let left = count;
  const place = async () => {
    while (left > 0) {
      const some = Math.min(batch, left);
      left -= some;
      await call(some);
    }
  };
  await Promise.all(Array.from({ length: places }, place));
}

async function graphile() {
  const { run, makeWorkerUtils, Logger } = require('graphile-worker');
  const logger = new Logger(() => () => {});
  const preset = {
    worker: {
      connectionString: url,
      maxPoolSize: workers + 4,
      concurrentJobs: workers,
      // By the batch: its own local queue, and completions written together.
      ...(batch > 1 ? { concurrentJobs: batch, localQueue: { size: batch * workers }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {}),
    },
  };
  const utils = await makeWorkerUtils({ preset, logger });
  await utils.migrate();
  const add = (count) =>
    at(workers, count, (some) =>
      batch === 1
        ? utils.addJob(queue, {})
        : utils.addJobs(Array.from({ length: some }, () => ({ identifier: queue, payload: {} }))),
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
    at(workers, count, (some) =>
      batch === 1 ? boss.send(queue, {}) : boss.insert(Array.from({ length: some }, () => ({ name: queue, data: {} }))),
    );
  // Its own worker waits half a second between two looks: it is spared that.
  const work = async (count) => {
    const start = performance.now();
    await at(workers, count, async (some) => {
      const jobs = await boss.fetch(queue, { batchSize: some });
      if (jobs.length > 0) await boss.complete(queue, jobs.map((job) => job.id));
    });
    return performance.now() - start;
  };
  return { add, work, end: () => boss.stop({ graceful: false }) };
}

async function main() {
  const side = await (name === 'pg-boss' ? pgBoss() : graphile());
  // The first items warm up.
  const first = Math.max(batch * workers, Math.round(items / 10));
  await side.add(first);
  await side.work(first);
  const start = performance.now();
  await side.add(items);
  const added = performance.now() - start;
  const worked = await side.work(items);
  console.log(Math.round(items / ((added + worked) / 1000)));
  await side.end();
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
