"""Run one round of procrastinate: add items, then take and complete them. Print the items per second.

    python queue_procrastinate.py URL WORKERS BATCH ITEMS
"""

import asyncio
import logging
import sys
import time

import procrastinate

url = sys.argv[1]
workers, batch, items = map(int, sys.argv[2:])
logging.disable(logging.CRITICAL)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=workers, max_size=workers + 2))


@app.task(queue="noop", name="noop")
async def noop():
    pass


async def add(count):
    remaining = count

    async def add_batches():
        nonlocal remaining
        while remaining > 0:
            size = min(batch, remaining)
            remaining -= size
            if batch == 1:
                await noop.defer_async()
            else:
                await noop.batch_defer_async(*({} for _ in range(size)))

    await asyncio.gather(*(add_batches() for _ in range(workers)))


async def work():
    await app.run_worker_async(queues=["noop"], concurrency=workers, wait=False, install_signal_handlers=False)


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        # The first items are a warm-up.
        await add(max(batch * workers, items // 10))
        await work()
        start = time.perf_counter()
        await add(items)
        await work()
        print(round(items / (time.perf_counter() - start)))


asyncio.run(main())
