"""APScheduler 3: a job store on Postgres, the default pool of threads; see protocol.py.

Jobs are never dropped for being late (`misfire_grace_time=None`), as nobody else drops them.
"""

import asyncio
from collections.abc import Sequence

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from protocol import Due, Starts, Stopwatch, serve

THREADS = 10

STARTS: list[Starts] = []


def note(number: int) -> None:
    STARTS[0].note(number)


def scheduler_on(url: str) -> BackgroundScheduler:
    address = url.replace("postgresql://", "postgresql+psycopg://")
    return BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=address)},
        executors={"default": ThreadPoolExecutor(THREADS)},
        job_defaults={"misfire_grace_time": None},
        timezone="UTC",
    )


async def enqueue(url: str, dues: Sequence[Due], stopwatch: Stopwatch) -> None:
    scheduler = scheduler_on(url)
    scheduler.start(paused=True)
    with stopwatch.running():
        for due in dues:
            scheduler.add_job(note, "date", run_date=due.at, args=[due.number])
    scheduler.shutdown()


async def work(url: str, starts: Starts) -> None:
    STARTS.append(starts)
    scheduler = scheduler_on(url)
    scheduler.start()
    await starts.wait()
    scheduler.shutdown()


if __name__ == "__main__":
    serve(enqueue, work, asyncio.run)
