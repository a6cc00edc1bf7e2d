"""Migrations on a real Postgres."""

import asyncio
from uuid import uuid4

import asyncpg
import pytest
from tests.postgres import Connect, temporary_server, with_database

from wheelsched.config import StoreConfig
from wheelsched.errors import (
    DatabaseNotFound,
    InvalidDatabaseUrl,
    RightMissing,
    SchemaDiverged,
    SchemaTooNew,
    SchemaTooOld,
    StoreFault,
)
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.schema.migrate import (
    Migrated,
    check_schema,
    known_migrations,
    migrate,
    pending,
)

NOW_US = 1_900_000_000_000_000


@pytest.fixture
async def connection(empty_database: str, connect: Connect) -> Connection:
    return await connect(empty_database)


def test_the_numbers_have_no_gap() -> None:
    numbers = [migration.number for migration in known_migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_the_second_time_there_is_nothing_to_do(
    connection: Connection,
) -> None:
    assert await pending(connection) == known_migrations()
    assert (await migrate(connection)).applied == known_migrations()
    assert await migrate(connection) == Migrated([], [])
    await check_schema(connection)


async def test_many_at_once_apply_each_migration_once(
    empty_database: str, connect: Connect
) -> None:
    connections = [await connect(empty_database) for _ in range(8)]
    migrated = await asyncio.gather(*(migrate(connection) for connection in connections))
    assert sorted(len(each.applied) for each in migrated) == [0] * 7 + [len(known_migrations())]


async def test_a_migration_that_fails_leaves_nothing_behind(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = known_migrations()
    broken = type(known[0])(len(known) + 1, "broken", "CREATE TABLE half (); SELECT 1 / 0")
    monkeypatch.setattr(
        "wheelsched.store.schema.migrate.known_migrations", lambda: [*known, broken]
    )
    with pytest.raises(StoreFault, match="division by zero"):
        await migrate(connection)
    monkeypatch.undo()
    assert await pending(connection) == known


async def test_an_older_schema_is_refused(connection: Connection) -> None:
    with pytest.raises(SchemaTooOld, match="0001_roles"):
        await check_schema(connection)


async def test_a_newer_schema_is_refused(connection: Connection) -> None:
    await migrate(connection)
    await connection.execute("INSERT INTO wheelsched.migrations VALUES (9999, 'future', 'x')")
    with pytest.raises(SchemaTooNew, match="9999_future"):
        await check_schema(connection)
    with pytest.raises(SchemaTooNew):
        await migrate(connection)


async def test_a_migration_that_was_changed_afterwards_is_refused(
    connection: Connection,
) -> None:
    await migrate(connection)
    await connection.execute("UPDATE wheelsched.migrations SET digest = 'x' WHERE number = 1")
    with pytest.raises(SchemaDiverged, match="0001_roles"):
        await check_schema(connection)


async def test_days_are_made_once_by_many_and_cover_the_day(
    database: str, connect: Connect
) -> None:
    connections = [await connect(database) for _ in range(4)]
    sql = "SELECT wheelsched.make_days(ARRAY['2026-03-08', '2026-03-09']::date[])"
    made = await asyncio.gather(*(connection.fetchval(sql) for connection in connections))
    assert sorted(made) == [0, 0, 0, 2]
    insert = """
        INSERT INTO wheelsched.runs (job_id, due_at, tenant_id, partition, state)
        VALUES (gen_random_uuid(), $1::text::timestamptz, gen_random_uuid(), 0, 'armed')
    """
    for instant in ("2026-03-08 00:00:00Z", "2026-03-09 23:59:59.999999Z"):
        await connections[0].execute(insert, instant)
    with pytest.raises(asyncpg.CheckViolationError):
        await connections[0].execute(insert, "2026-03-10 00:00:00Z")


async def test_making_days_waits_for_no_open_statement_of_the_hot_path(
    database: str, connect: Connect
) -> None:
    hot, maintenance = await connect(database), await connect(database)
    await maintenance.execute("SELECT wheelsched.make_days(ARRAY['2026-03-08']::date[])")
    async with hot.transaction():
        await hot.execute("UPDATE wheelsched.runs SET state = 'dead'")
        await maintenance.execute("SET lock_timeout = '5s'")
        await maintenance.execute("SELECT wheelsched.make_days(ARRAY['2026-03-09']::date[])")


async def test_an_account_that_may_make_roles_can_migrate() -> None:
    """It is no superuser, and on a server of its own: roles belong to the whole of it."""
    with temporary_server() as server:
        administration = await asyncpg.connect(server.url)
        await administration.execute("CREATE ROLE operator LOGIN CREATEROLE")
        await administration.execute("CREATE DATABASE operated OWNER operator")
        await administration.close()
        url = with_database(server.url, "operated")
        connection = await asyncpg.connect(url, user="operator")
        assert len((await migrate(connection)).applied) == len(known_migrations())
        assert await migrate(connection) == Migrated([], [])
        await connection.execute("SET ROLE wheelsched_owner")
        await connection.close()


async def test_a_server_that_was_never_migrated_says_so() -> None:
    with temporary_server() as server:
        with pytest.raises(SchemaTooOld):
            await Database.open(StoreConfig(url=server.url, role="shard"))
        with pytest.raises(DatabaseNotFound):
            await Database.open(StoreConfig(url=with_database(server.url, "none"), role="shard"))


@pytest.mark.parametrize("url", ["nonsense", "postgresql://host:port/name", "http://host/name"])
async def test_what_is_no_address_is_not_waited_for(url: str) -> None:
    with pytest.raises(InvalidDatabaseUrl):
        await Database.open(StoreConfig(url=url, role="shard"))


async def test_a_migration_that_may_not_be_made_says_so(
    empty_database: str, connect: Connect
) -> None:
    await (await connect(empty_database)).execute("CREATE ROLE reader")
    connection = await connect(empty_database, role="reader")
    with pytest.raises(RightMissing):
        await migrate(connection)


async def test_a_database_with_jobs_is_migrated(
    empty_database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before there were drafts."""
    connection = await connect(empty_database)
    known = known_migrations()
    monkeypatch.setattr("wheelsched.store.schema.migrate.known_migrations", lambda: known[:5])
    assert [migration.number for migration in (await migrate(connection)).applied] == [
        1,
        2,
        3,
        4,
        5,
    ]
    tenant_id, job_id = uuid4(), uuid4()
    await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES ($1, 'a')", tenant_id)
    await connection.execute(
        "INSERT INTO jobs VALUES ($1, $2, 0, 'job', 'paused', 1, '{}', '{}', $3, $3)",
        job_id,
        tenant_id,
        NOW_US,
    )
    monkeypatch.undo()
    assert 6 in [migration.number for migration in (await migrate(connection)).applied]
    row = await connection.fetchrow("SELECT state, error FROM jobs WHERE job_id = $1", job_id)
    assert row is not None
    assert tuple(row) == ("paused", None)
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE jobs SET state = 'nonsense'")
