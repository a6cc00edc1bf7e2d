"""What each role can do, by the rules of the database and not by the program's."""

from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.postgres import Connect

from wheelsched.store.connection import Connection

GUARDED = ("tenants", "jobs", "timers", "runs", "attempts", "retries", "dead", "audit")
DUE_US = 1_800_000_000_000_000


@pytest.fixture
async def tenants(database: str, connect: Connect) -> tuple[UUID, UUID]:
    """Two tenants with a row in every table that knows tenants."""
    owner = await connect(database)
    mine, theirs = uuid4(), uuid4()
    await owner.execute("SELECT make_days(ARRAY['2027-01-15']::date[])")
    for tenant_id in (mine, theirs):
        job_id, name = uuid4(), str(tenant_id)
        await owner.execute(
            "INSERT INTO tenants (tenant_id, name) VALUES ($1, $2)", tenant_id, name
        )
        await owner.execute(
            "INSERT INTO jobs VALUES ($1, $2, 0, 'job', 'active', 1, '{}', '{}', $3, $3)",
            job_id,
            tenant_id,
            DUE_US,
        )
        await owner.execute("INSERT INTO timers VALUES ($1, 0, 1, $2)", job_id, DUE_US)
        await owner.execute("INSERT INTO retries VALUES ($1, $2, 0, $2)", job_id, DUE_US)
        await owner.execute(
            "INSERT INTO runs (job_id, due_at, tenant_id, partition, state)"
            " VALUES ($1, $2, $3, 0, 'dead')",
            job_id,
            DUE_US,
            tenant_id,
        )
        await owner.execute(
            "INSERT INTO attempts (job_id, due_at, token, tenant_id, attempt, outcome)"
            " VALUES ($1, $2, 1, $3, 1, 'failed')",
            job_id,
            DUE_US,
            tenant_id,
        )
        await owner.execute("INSERT INTO dead VALUES ($1, $2, $3)", tenant_id, DUE_US, job_id)
        await owner.execute(
            "INSERT INTO audit (tenant_id, actor, verb, subject) VALUES ($1, 'a', 'b', 'c')",
            tenant_id,
        )
    return mine, theirs


@pytest.fixture
async def api(database: str, connect: Connect, tenants: tuple[UUID, UUID]) -> Connection:
    """The API, which has named the first tenant."""
    connection = await connect(database, role="wheelsched_api")
    await connection.execute("SELECT set_config('wheelsched.tenant', $1, false)", str(tenants[0]))
    return connection


async def test_the_api_sees_the_rows_of_the_tenant_it_named_and_no_others(api: Connection) -> None:
    for table in GUARDED:
        assert await api.fetchval(f"SELECT count(*) FROM {table}") == 1, table
    await api.execute("RESET wheelsched.tenant")
    for table in GUARDED:
        assert await api.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_the_api_changes_nothing_of_others(
    api: Connection, database: str, connect: Connect
) -> None:
    owner = await connect(database)
    for table in ("timers", "retries", "runs", "attempts", "dead", "jobs"):
        assert await api.execute(f"DELETE FROM {table}") == "DELETE 1", table
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 1, table


async def test_the_api_writes_nothing_for_others(
    api: Connection, tenants: tuple[UUID, UUID]
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await api.execute("UPDATE jobs SET tenant_id = $1", tenants[1])
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await api.execute("INSERT INTO timers VALUES ($1, 0, 1, $2)", uuid4(), DUE_US)


async def test_nobody_goes_round_by_the_table_of_a_day(
    api: Connection, database: str, connect: Connect
) -> None:
    shard = await connect(database, role="wheelsched_shard")
    for connection in (api, shard):
        for child in ("runs_20270115", "attempts_20270115"):
            await refused(connection, f"SELECT * FROM {child}")


async def test_what_the_api_cannot_do(api: Connection) -> None:
    await refused(api, "DELETE FROM shards")
    await refused(api, "UPDATE partitions SET epoch = 0")
    await refused(api, "UPDATE audit SET actor = 'nobody'")
    await refused(api, "DROP TABLE jobs")
    await refused(api, "SELECT make_day('runs', '2030-01-01', 50)")


async def test_what_a_shard_cannot_do(database: str, connect: Connect) -> None:
    shard = await connect(database, role="wheelsched_shard")
    await refused(shard, "SELECT * FROM tokens")
    await refused(shard, "DELETE FROM jobs")
    await refused(shard, "UPDATE jobs SET definition = '{}'")
    await refused(shard, "DROP TABLE timers")
    await refused(shard, "DELETE FROM audit")


async def refused(connection: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
