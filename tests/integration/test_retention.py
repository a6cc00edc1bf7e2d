"""The daily tables: made ahead, dropped past retention, and never in the way."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.postgres import TIMEOUTS, Connect
from tests.waiting import until

from wheelsched.config import StoreConfig
from wheelsched.daemon.shard import run_retention
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.schema.retention import Retention
from wheelsched.store.schema.settings import Settings

KEEP = Settings(history_days=90, dead_days=90)
HISTORY = load_queries("history.sql")
TENANT = uuid4()
INSERT = """
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state)
    VALUES ($1, clock_timestamp() - make_interval(days => $2), $1, 0, 'dead')
"""
MAKE_DAY = "SELECT make_days(ARRAY[(now() AT TIME ZONE 'UTC')::date - $1::integer])"
PENDING = "SELECT bool_or(inhdetachpending) FROM pg_inherits"
MISSING = """
    SELECT count(*) FROM generate_series(-1, $1) AS n
    WHERE (clock_timestamp() AT TIME ZONE 'UTC')::date + n NOT IN (SELECT day FROM days)
"""
CHILDREN = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'runs'::regclass"


@pytest.fixture
async def retention(database: str) -> AsyncIterator[Retention]:
    async with await Database.open(StoreConfig(url=database, role="owner", **TIMEOUTS)) as owner:
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


OLD_DAYS = 8


async def add_job(
    owner: Connection, kind: str = "at", age_days: int = OLD_DAYS, tenant_id: UUID = TENANT
) -> UUID:
    """A job that finished so many days ago."""
    job_id = uuid4()
    await owner.execute(
        "INSERT INTO jobs SELECT $1::uuid, $2, 0, $1::uuid::text, 'finished', 1,"
        " json_build_object('spec', json_build_object('kind', $3::text)), '{}', at, at"
        " FROM (SELECT now() - make_interval(days => $4)) AS finished (at)",
        job_id,
        tenant_id,
        kind,
        age_days,
    )
    await owner.execute(
        "INSERT INTO tenants (tenant_id, name) VALUES ($1::uuid, $1::uuid::text)"
        " ON CONFLICT DO NOTHING",
        tenant_id,
    )
    return job_id


async def job_ids(owner: Connection) -> set[UUID]:
    return {row["job_id"] for row in await owner.fetch("SELECT job_id FROM jobs")}


async def add_run(connection: Connection, job_id: UUID, state: str) -> None:
    await connection.execute(
        "INSERT INTO runs (job_id, due_at, tenant_id, partition, state)"
        " VALUES ($1, clock_timestamp(), $2, 0, $3)",
        job_id,
        TENANT,
        state,
    )


async def wait_for_lock(owner: Connection, statement: str) -> None:
    """Returns when such a statement waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE query LIKE '%' || $1 AND wait_event_type = 'Lock'"
    )
    await until(lambda: owner.fetchval(waiting, statement))


async def test_jobs_that_finished_long_ago_are_removed_in_batches(
    retention: Retention, owner: Connection
) -> None:
    kept = {await add_job(owner, age_days=6)}
    for kind in ("at", "at", "at", "cron", "every"):
        await add_job(owner, kind)
    assert await retention.remove_finished(7, batch=2) == 5
    assert await job_ids(owner) == kept
    assert await retention.remove_finished(7) == 0


async def test_a_job_with_a_live_run_stays_and_stops_no_other(
    retention: Retention, owner: Connection
) -> None:
    live = set()
    for state in ("armed", "running", "retrying"):
        live.add(job_id := await add_job(owner, age_days=20))
        await add_run(owner, job_id, state)
    await add_run(owner, await add_job(owner), "succeeded")
    assert await retention.remove_finished(7, batch=1) == 1
    assert await job_ids(owner) == live
    assert await owner.fetchval("SELECT count(*) FROM runs") == 4


async def test_a_finished_job_with_a_requested_run_stays(
    retention: Retention, owner: Connection, database: str, connect: Connect
) -> None:
    job_id = await add_job(owner)
    asking = await connect(database)
    async with asking.transaction():
        await asking.execute("SELECT set_config('wheelsched.tenant', $1, true)", str(TENANT))
        now_us = await asking.fetchval("SELECT clock_timestamp()")
        await asking.fetch(HISTORY["lock_requested"], job_id)
        await asking.fetch(HISTORY["request_runs"], job_id, [now_us], ["manual"], [None], None)
        assert await retention.remove_finished(7) == 0
    assert await retention.remove_finished(7) == 0
    assert await job_ids(owner) == {job_id}


async def test_a_shard_keeps_house_by_the_settings(database: str, owner: Connection) -> None:
    await owner.execute("UPDATE settings SET history_days = 5, dead_days = 5, finished_days = 2")
    await add_job(owner, age_days=3)
    await make_old(owner, 6)
    keeping = asyncio.create_task(
        run_retention(StoreConfig(url=database, role="shard", **TIMEOUTS))
    )

    async def is_clean() -> bool:
        return not await job_ids(owner) and not await owner.fetchval("SELECT count(*) FROM runs")

    await until(is_clean)
    keeping.cancel()


async def test_a_turn_lasts_as_long_as_its_work(
    database: str, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drop(self: Retention, settings: Settings) -> int:
        await owner.execute("SELECT pg_sleep(4)")
        return settings.history_days

    monkeypatch.setattr(Retention, "_drop", drop)
    config = StoreConfig(url=database, role="owner", command_timeout_ms=2_000)
    async with await Database.open(config) as hasty:
        assert await Retention(hasty).drop_old_days(KEEP) == 90


async def test_coming_days_are_made_once(retention: Retention, owner: Connection) -> None:
    missing = await owner.fetchval(MISSING, 5)
    assert missing > 0
    assert await retention.make_days_ahead(5) == missing
    assert await retention.make_days_ahead(5) == 0


async def test_only_what_is_past_retention_is_dropped(
    retention: Retention, owner: Connection
) -> None:
    await make_old(owner, 89, 90, 91, 400)
    before = await owner.fetchval(CHILDREN)
    assert await retention.drop_old_days(KEEP) == 4
    assert await owner.fetchval(CHILDREN) == before - 2
    assert await owner.fetchval("SELECT count(*) FROM runs") == 2
    assert await retention.drop_old_days(KEEP) == 0


async def test_the_payload_of_a_run_goes_with_the_day_of_the_run(
    retention: Retention, owner: Connection
) -> None:
    await make_old(owner, 88, 92)
    await owner.execute(
        "INSERT INTO payloads SELECT job_id, due_at, tenant_id, '{}' FROM runs ORDER BY due_at"
    )
    await retention.drop_old_days(KEEP)
    kept = await owner.fetch("SELECT job_id FROM payloads JOIN runs USING (job_id, due_at)")
    assert len(kept) == await owner.fetchval("SELECT count(*) FROM payloads") == 1


async def test_many_at_once_drop_each_day_once(retention: Retention, owner: Connection) -> None:
    await make_old(owner, *range(91, 99))
    dropped = await asyncio.gather(*(retention.drop_old_days(KEEP) for _ in range(3)))
    assert await owner.fetchval("SELECT count(*) FROM days WHERE day < current_date - 90") == 0
    assert await owner.fetchval("SELECT count(*) FROM runs") == 0
    assert sum(dropped) == 16


async def test_a_detachment_that_was_cut_short_is_finished(
    retention: Retention, owner: Connection, database: str, connect: Connect
) -> None:
    await make_old(owner, 200)
    reader = await connect(database)
    cut = await connect(database)
    async with reader.transaction():
        await reader.fetch("SELECT * FROM runs")
        (statement,) = await owner.fetchrow(
            "SELECT format('ALTER TABLE runs DETACH PARTITION %s CONCURRENTLY', inhrelid::regclass)"
            " FROM pg_inherits WHERE inhparent = 'runs'::regclass ORDER BY inhrelid::regclass::text"
        ) or ("",)
        detaching = asyncio.create_task(cut.execute(statement))
        await until(lambda: owner.fetchval(PENDING))
        await owner.execute("SELECT pg_cancel_backend($1)", cut.get_server_pid())
        with pytest.raises(asyncpg.QueryCanceledError):
            await detaching
    assert await owner.fetchval(PENDING)
    assert await retention.drop_old_days(KEEP) == 2


async def test_dropping_does_not_stop_the_hot_path(
    retention: Retention, owner: Connection, database: str, connect: Connect
) -> None:
    """An old reader holds the detachment up; claims and outcomes go through meanwhile."""
    await make_old(owner, 200)
    reader = await connect(database)
    hot = await connect(database, lock_timeout="1s")
    async with reader.transaction():
        await reader.fetch("SELECT * FROM runs")
        dropping = asyncio.create_task(retention.drop_old_days(KEEP))
        await wait_for_lock(owner, "ALTER TABLE%")
        await hot.execute(INSERT, uuid4(), 0)
        await hot.execute("UPDATE runs SET state = 'succeeded'")
    assert await dropping == 2
