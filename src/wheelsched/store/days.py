"""Under every stage: the tables of days that nobody made ahead, on Postgres.

Invariant: what finds the table of a day missing has written nothing, and is done again when the
table is there.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from wheelsched.errors import DayMissing
from wheelsched.store.database import Database
from wheelsched.store.queries import load_queries

QUERIES = load_queries("days.sql")

Days = list[int]  # an instant in each day that a change writes to
Answer = TypeVar("Answer")


async def with_days(database: Database, change: Callable[[Days], Awaitable[Answer]]) -> Answer:
    """Makes a change that writes runs, and the tables of days that are missing: long past, or
    forgotten."""
    days: Days = []
    try:
        return await change(days)
    except DayMissing:
        await database.fetchval(QUERIES["make_days"], days)
        return await change(days)
