"""APScheduler 4, a pre-release: schedules on Postgres by asyncpg; see protocol.py.

A task names its function, and each job is run on the loop.
"""

from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import uvloop
from apscheduler import AsyncScheduler, ConflictPolicy, TaskDefaults
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.date import DateTrigger
from protocol import Due, Starts, Stopwatch, serve
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

CONCURRENCY = 1_000

STARTS: list[Starts] = []


async def note(number: int) -> None:
    STARTS[0].note(number)


def engine_on(url: str) -> AsyncEngine:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    address = URL.create("postgresql+asyncpg", username=parts.username, database=parts.path[1:])
    where = {"host": query["host"][0], "port": int(query["port"][0])}
    return create_async_engine(address, connect_args=where, pool_size=10)


def scheduler_on(engine: AsyncEngine) -> AsyncScheduler:
    return AsyncScheduler(
        SQLAlchemyDataStore(engine),
        max_concurrent_jobs=CONCURRENCY,
        task_defaults=TaskDefaults(job_executor="async", max_running_jobs=None),
        cleanup_interval=timedelta(seconds=10),
    )


async def enqueue(url: str, dues: Sequence[Due], stopwatch: Stopwatch) -> None:
    engine = engine_on(url)
    async with scheduler_on(engine) as scheduler:
        await scheduler.configure_task("note", func=note)
        with stopwatch.running():
            for due in dues:
                await scheduler.add_schedule(
                    "note",
                    DateTrigger(due.at),
                    id=str(due.number),
                    args=[due.number],
                    conflict_policy=ConflictPolicy.exception,
                )
    await engine.dispose()


async def work(url: str, starts: Starts) -> None:
    STARTS.append(starts)
    engine = engine_on(url)
    async with scheduler_on(engine) as scheduler:
        await scheduler.configure_task("note", func=note)
        await scheduler.start_in_background()
        await starts.wait()
        await scheduler.stop()
    await engine.dispose()


if __name__ == "__main__":
    serve(enqueue, work, uvloop.run)
