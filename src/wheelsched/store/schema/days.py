"""Creates missing daily tables on demand, on Postgres.

Invariant: a change that fails because a daily table is missing has written nothing, and is retried
after the table was created.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from wheelsched.errors import DayMissing
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("days.sql")

Days = list[int]  # at least one instant of each day that a change writes to
Answer = TypeVar("Answer")


async def with_days(database: Database, change: Callable[[Days], Awaitable[Answer]]) -> Answer:
    """Makes a change that writes runs. If the table of a day is missing, creates it and retries.

    The change appends to `days` what it is going to write to.
    """
    days: Days = []
    try:
        return await change(days)
    except DayMissing:
        await database.fetchval(QUERIES["make_days"], days)
        return await change(days)
