"""procrastinate: several workers in a process, a pool, jobs deleted when done; see protocol.py.

Its worker takes one job a statement, so that throughput comes from several workers. Nothing tells
them when a job that was put off comes due: they poll.
"""

import asyncio
from collections.abc import Sequence

import uvloop
from procrastinate import App, PsycopgConnector
from protocol import Due, Starts, Stopwatch, in_parts, serve

WORKERS = 4
CONCURRENCY = 20
POLLING_S = 0.05

STARTS: list[Starts] = []
app = App(connector=PsycopgConnector())


@app.task(name="note")
async def note(number: int) -> None:
    STARTS[0].note(number)


async def enqueue(url: str, dues: Sequence[Due], stopwatch: Stopwatch) -> None:
    opened = app.with_connector(PsycopgConnector(conninfo=url))
    async with opened.open_async():
        await opened.schema_manager.apply_schema_async()
        task = opened.tasks["note"]
        with stopwatch.running():
            for part in in_parts(dues):
                jobs = [
                    task.configure(schedule_at=due.at).make_new_job(number=due.number)
                    for due in part
                ]
                await opened.job_manager.batch_defer_jobs_async(jobs=jobs)


async def work(url: str, starts: Starts) -> None:
    STARTS.append(starts)
    opened = app.with_connector(PsycopgConnector(conninfo=url, min_size=8, max_size=30))
    async with opened.open_async():
        workers = [
            asyncio.create_task(
                opened.run_worker_async(
                    concurrency=CONCURRENCY,
                    fetch_job_polling_interval=POLLING_S,
                    delete_jobs="successful",
                    install_signal_handlers=False,
                    listen_notify=False,
                )
            )
            for _ in range(WORKERS)
        ]
        await starts.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers, timeout=30)


if __name__ == "__main__":
    serve(enqueue, work, uvloop.run)
