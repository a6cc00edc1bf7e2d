"""Reads of one round trip: row level security applies, and no tenant is left behind.

Every test has one connection for both tenants, as a pool has.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.postgres import Connect

from wheelsched.ports import FIRST_JOB
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import PLANNING
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("jobs.sql")
READ, LIST = QUERIES["read_jobs"], QUERIES["list_jobs"]
NOW_US = 1_800_000_000_000_000
TENANT_LEFT = "SELECT nullif(current_setting('wheelsched.tenant', true), '')"
NO_FILTER = (None, None, "{}")
FILTERS = (NO_FILTER, ("active", None, "{}"), (None, "job", "{}"), (None, None, '{"a": "b"}'))


class World(NamedTuple):
    """Two tenants with a job each, of one name; the database's owner, and the API."""

    jobs: dict[UUID, UUID]
    owner: Connection
    api: Connection


@pytest.fixture
async def world(database: str, connect: Connect) -> World:
    owner = await connect(database)
    api = await connect(database, role="wheelsched_api", **PLANNING["api"])
    jobs = {uuid4(): uuid4(), uuid4(): uuid4()}
    for tenant_id, job_id in jobs.items():
        await owner.execute(
            "INSERT INTO tenants (tenant_id, name) VALUES ($1, $2)", tenant_id, str(tenant_id)
        )
        await owner.execute(
            "INSERT INTO jobs (job_id, tenant_id, partition, name, state, definition, tags,"
            " created_at, updated_at)"
            """ VALUES ($1, $2, 0, 'job', 'active', '{}', '{"a": "b"}', $3, $3)""",
            job_id,
            tenant_id,
            NOW_US,
        )
    return World(jobs, owner, api)


async def listed(
    connection: Connection, tenant_id: UUID, filters: Sequence[object] = NO_FILTER
) -> list[UUID]:
    rows = await connection.fetch(LIST, tenant_id, *FIRST_JOB, *filters, 9, None)
    return [row["job_id"] for row in rows if row["job_id"] is not None]


async def read(connection: Connection, tenant_id: UUID, job_id: UUID) -> list[UUID]:
    return [row["job_id"] for row in await connection.fetch(READ, tenant_id, [job_id])]


async def sees_nothing(connection: Connection) -> bool:
    """Whether the session is as it began: without a tenant, and without rows."""
    left = await connection.fetchval(TENANT_LEFT)
    return left is None and not await connection.fetchval("SELECT count(*) FROM jobs")


async def test_each_read_sees_its_own_tenant_whoever_came_before(world: World) -> None:
    (mine, my_job), (theirs, their_job) = world.jobs.items()
    for _ in range(7):  # beyond the five times after which Postgres may choose another plan
        for tenant_id, own, foreign in ((mine, my_job, their_job), (theirs, their_job, my_job)):
            assert await read(world.api, tenant_id, own) == [own]
            assert await read(world.api, tenant_id, foreign) == []
            for filters in FILTERS:
                assert await listed(world.api, tenant_id, filters) == [own]
            assert await read(world.api, uuid4(), own) == []
            assert await listed(world.api, uuid4()) == []


async def test_no_tenant_is_left_in_the_session_or_in_its_transaction(world: World) -> None:
    (mine, my_job), _ = world.jobs.items()
    assert await read(world.api, mine, my_job)
    assert await sees_nothing(world.api)
    assert await listed(world.api, mine)
    assert await sees_nothing(world.api)
    async with world.api.transaction():
        assert await read(world.api, mine, my_job)
        assert await listed(world.api, mine)
        assert await sees_nothing(world.api)


async def test_no_tenant_is_left_by_a_read_that_fails(world: World) -> None:
    (mine, _), _ = world.jobs.items()
    negative_limit = (mine, *FIRST_JOB, *NO_FILTER, -1, None)
    with pytest.raises(asyncpg.InvalidRowCountInLimitClauseError):
        await world.api.fetch(LIST, *negative_limit)
    assert await sees_nothing(world.api)
    async with world.api.transaction():
        with pytest.raises(asyncpg.InvalidRowCountInLimitClauseError):
            async with world.api.transaction():  # a savepoint
                await world.api.fetch(LIST, *negative_limit)
        assert await sees_nothing(world.api)


async def test_no_tenant_is_left_by_a_read_that_times_out_half_way(world: World) -> None:
    (mine, my_job), _ = world.jobs.items()
    await world.api.execute("SET statement_timeout = 100")
    async with world.owner.transaction():
        await world.owner.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(asyncpg.QueryCanceledError):
            await read(world.api, mine, my_job)
        with pytest.raises(asyncpg.QueryCanceledError):
            await listed(world.api, mine)
    await world.api.execute("RESET statement_timeout")
    assert await sees_nothing(world.api)
    assert await read(world.api, mine, my_job) == [my_job]


async def test_row_level_security_decides_and_not_the_statement(world: World) -> None:
    (mine, my_job), _ = world.jobs.items()
    assert await read(world.api, mine, my_job) == await listed(world.api, mine) == [my_job]
    await world.owner.execute("DROP POLICY tenant ON jobs")
    assert await read(world.api, mine, my_job) == await listed(world.api, mine) == []


async def test_the_functions_have_the_rights_of_their_caller_who_is_the_api(world: World) -> None:
    found = await world.owner.fetch(
        "SELECT proname, prosecdef, has_function_privilege('wheelsched_shard', oid, 'EXECUTE')"
        " FROM pg_proc WHERE pronamespace = 'wheelsched'::regnamespace"
        " AND proname IN ('read_jobs', 'list_jobs') ORDER BY proname"
    )
    assert [tuple(row) for row in found] == [
        ("list_jobs", False, False),
        ("read_jobs", False, False),
    ]


async def test_planner_settings_hold_inside_only(world: World) -> None:
    (mine, my_job), _ = world.jobs.items()
    settings = (
        "SELECT name, setting FROM pg_settings WHERE name LIKE 'enable_%' OR name LIKE 'plan%'"
    )
    before = await world.api.fetch(settings)
    async with world.api.transaction():
        await read(world.api, mine, my_job)
        for filters in FILTERS:
            await listed(world.api, mine, filters)
        assert await world.api.fetch(settings) == before


async def test_a_known_fingerprint_brings_no_job_and_a_change_another_fingerprint(
    world: World,
) -> None:
    (mine, my_job), (theirs, _) = world.jobs.items()

    async def page(tenant_id: UUID, known: bytes | None) -> tuple[bytes | None, UUID | None]:
        arguments = (tenant_id, *FIRST_JOB, *NO_FILTER, 9, known)
        (row,) = await world.api.fetch(LIST, *arguments)
        return row["fingerprint"], row["job_id"]

    first, job_id = await page(mine, None)
    assert job_id == my_job
    assert await page(mine, first) == (first, None)
    _, their_job = await page(theirs, first)
    assert their_job is not None  # the page of one tenant says nothing about another's
    for change in ("version = version + 1", "updated_at = updated_at + interval '1 microsecond'"):
        await world.owner.execute(f"UPDATE jobs SET {change} WHERE job_id = $1", my_job)
        changed, job_id = await page(mine, first)
        assert changed != first
        assert job_id == my_job
        first = changed
    await world.owner.execute("DELETE FROM jobs WHERE job_id = $1", my_job)
    assert await page(mine, first) == await page(mine, None) == (None, None)
