"""What each role can do, by the rules of the database and not by the program's."""

from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.postgres import Connect

from wheelsched.store.connections.connection import Connection

GUARDED = (
    "tenants",
    "jobs",
    "job_counts",
    "timers",
    "runs",
    "attempts",
    "retries",
    "dead",
    "audit",
    "idempotency",
)
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
        await owner.execute("INSERT INTO job_counts VALUES ($1, 1)", tenant_id)
        await owner.execute(
            "INSERT INTO tokens VALUES ($1, $2, 'a', '{}')", job_id.bytes, tenant_id
        )
        await owner.execute("INSERT INTO timers VALUES ($1, 0, 1, $2)", job_id, DUE_US)
        await owner.execute(
            "INSERT INTO retries VALUES ($1, $2, $3, 0, $2)", job_id, DUE_US, tenant_id
        )
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
        await owner.execute(
            "INSERT INTO idempotency VALUES ($1, 'key', '', $2, $2)", tenant_id, DUE_US
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


async def test_a_tenant_sees_no_token_and_writes_no_tenant(
    api: Connection, tenants: tuple[UUID, UUID]
) -> None:
    assert await api.fetchval("SELECT count(*) FROM tokens") == 0
    assert await api.execute("UPDATE tenants SET job_quota = 1000000") == "UPDATE 0"
    assert await api.execute("UPDATE tokens SET scopes = '{admin}'") == "UPDATE 0"
    await refused(api, "INSERT INTO tenants VALUES (gen_random_uuid(), 'new')")
    await refused(api, f"INSERT INTO tokens VALUES ('x', '{tenants[0]}', 'a', '{{}}')")


async def test_before_it_knows_a_tenant_the_api_finds_one_token_by_its_digest(
    database: str, connect: Connect, tenants: tuple[UUID, UUID]
) -> None:
    nobody = await connect(database, role="wheelsched_api")
    owner = await connect(database)
    digest = await owner.fetchval("SELECT digest FROM tokens WHERE tenant_id = $1", tenants[1])
    rows = await nobody.fetch("SELECT tenant_id FROM find_token($1)", digest)
    assert [row["tenant_id"] for row in rows] == [tenants[1]]
    assert await nobody.fetch("SELECT * FROM find_token('x')") == []
    assert await nobody.fetchval("SELECT count(*) FROM tokens") == 0


async def test_an_operator_sees_tenants_and_tokens_and_nothing_that_belongs_to_them(
    database: str, connect: Connect, tenants: tuple[UUID, UUID]
) -> None:
    operator = await connect(database, role="wheelsched_api")
    await operator.execute("SELECT set_config('wheelsched.operator', 'true', false)")
    for table in ("tenants", "tokens", "audit"):
        assert await operator.fetchval(f"SELECT count(*) FROM {table}") == 2, table
    for table in ("jobs", "timers", "runs", "attempts", "retries", "dead"):
        assert await operator.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_the_api_changes_nothing_of_others(
    api: Connection, database: str, connect: Connect
) -> None:
    owner = await connect(database)
    assert await api.execute("UPDATE runs SET state = 'skipped'") == "UPDATE 1"
    for table in ("timers", "retries", "dead", "jobs"):
        assert await api.execute(f"DELETE FROM {table}") == "DELETE 1", table
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 1, table


async def test_the_api_writes_nothing_for_others(
    api: Connection, tenants: tuple[UUID, UUID]
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await api.execute("UPDATE jobs SET tenant_id = $1", tenants[1])
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await api.execute("INSERT INTO timers VALUES ($1, 0, 1, $2)", uuid4(), DUE_US)


async def test_the_table_of_a_day_does_not_bypass_row_level_security(
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
    await refused(api, "DELETE FROM runs")
    await refused(api, "DELETE FROM attempts")
    await refused(api, "DROP TABLE jobs")
    await refused(api, "SELECT make_day('runs', '2030-01-01', 50)")


async def test_what_a_shard_cannot_do(database: str, connect: Connect) -> None:
    shard = await connect(database, role="wheelsched_shard")
    await refused(shard, "SELECT * FROM tokens")
    await refused(shard, "SELECT * FROM find_token('x')")
    await refused(shard, "UPDATE tenants SET weight = 9")
    await refused(shard, "DELETE FROM jobs")
    await refused(shard, "UPDATE jobs SET tenant_id = gen_random_uuid()")
    await refused(shard, "INSERT INTO unplanned (job_id) VALUES (gen_random_uuid())")
    await refused(shard, "SELECT * FROM database_roles")
    await refused(shard, "DROP TABLE timers")
    await refused(shard, "DELETE FROM audit")
    await refused(shard, "INSERT INTO audit (actor, verb, subject) VALUES ('a', 'b', 'c')")
    await refused(shard, "INSERT INTO partitions (partition) VALUES (7)")
    await refused(shard, "DELETE FROM partitions")
    await refused(shard, "DELETE FROM runs")
    await refused(shard, "DELETE FROM attempts")


async def refused(connection: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
