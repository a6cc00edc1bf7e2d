"""The daily tables: made ahead, dropped past retention, and never in the way."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tests.postgres import Connect

from wheelsched.config import StoreConfig
from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.retention import Retention

INSERT = """
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state)
    VALUES ($1, clock_timestamp() - make_interval(days => $2), $1, 0, 'dead')
"""
MAKE_DAY = "SELECT make_days(ARRAY[(now() AT TIME ZONE 'UTC')::date - $1::integer])"
CHILDREN = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'runs'::regclass"


@pytest.fixture
async def retention(database: str) -> AsyncIterator[Retention]:
    async with await Database.open(StoreConfig(url=database, role="owner")) as owner:
        yield Retention(owner)


@pytest.fixture
async def owner(database: str, connect: Connect) -> Connection:
    return await connect(database)


async def make_old(owner: Connection, *ages: int) -> None:
    for age in ages:
        await owner.execute(
            "SELECT make_days(ARRAY[(now() AT TIME ZONE 'UTC')::date - $1::int])", age
        )
        await owner.execute(INSERT, uuid4(), age)


async def test_coming_days_are_made_once(retention: Retention) -> None:
    assert await retention.make_days_ahead(5) == 3
    assert await retention.make_days_ahead(5) == 0


async def test_only_what_is_past_retention_is_dropped(
    retention: Retention, owner: Connection
) -> None:
    await make_old(owner, 89, 90, 91, 400)
    before = await owner.fetchval(CHILDREN)
    assert await retention.drop_old_days() == 4
    assert await owner.fetchval(CHILDREN) == before - 2
    assert await owner.fetchval("SELECT count(*) FROM runs") == 2
    assert await retention.drop_old_days() == 0


async def test_many_at_once_drop_each_day_once(retention: Retention, owner: Connection) -> None:
    await make_old(owner, *range(91, 99))
    dropped = await asyncio.gather(*(retention.drop_old_days() for _ in range(3)))
    assert await owner.fetchval("SELECT count(*) FROM days WHERE day < current_date - 90") == 0
    assert await owner.fetchval("SELECT count(*) FROM runs") == 0
    assert sum(dropped) == 16


async def test_a_detachment_that_was_cut_short_is_finished(
    retention: Retention, owner: Connection, database: str, connect: Connect
) -> None:
    await make_old(owner, 200)
    reader = await connect(database)
    cut = await connect(database, statement_timeout="200ms")
    async with reader.transaction():
        await reader.fetch("SELECT * FROM runs")
        (statement,) = await owner.fetchrow(
            "SELECT format('ALTER TABLE runs DETACH PARTITION %s CONCURRENTLY', inhrelid::regclass)"
            " FROM pg_inherits WHERE inhparent = 'runs'::regclass ORDER BY inhrelid::regclass::text"
        ) or ("",)
        with pytest.raises(Exception, match="statement timeout"):
            await cut.execute(statement)
    assert await owner.fetchval("SELECT bool_or(inhdetachpending) FROM pg_inherits")
    assert await retention.drop_old_days() == 2


async def test_dropping_does_not_stop_the_hot_path(
    retention: Retention, owner: Connection, database: str, connect: Connect
) -> None:
    """An old reader holds the detachment up; claims and outcomes go through meanwhile."""
    await make_old(owner, 200)
    reader = await connect(database)
    hot = await connect(database, lock_timeout="1s")
    async with reader.transaction():
        await reader.fetch("SELECT * FROM runs")
        dropping = asyncio.create_task(retention.drop_old_days())
        async with asyncio.timeout(30):
            while not await owner.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE query LIKE 'ALTER TABLE%' AND wait_event_type = 'Lock'"
            ):
                await asyncio.sleep(0.005)
        await hot.execute(INSERT, uuid4(), 0)
        await hot.execute("UPDATE runs SET state = 'succeeded'")
    assert await dropping == 2
