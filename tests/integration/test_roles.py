"""Roles and their rights: looked up, made where that is allowed, and repaired after a restore.

Roles belong to a whole server, so each test has one of its own.
"""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.postgres import temporary_server, with_database

from wheelsched.config import StoreConfig
from wheelsched.daemon.database import MigrationReport, migrate_database
from wheelsched.errors import RightMissing, SchemaTooOld
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.schema.migrate import Migrated, known_migrations, migrate
from wheelsched.store.schema.rights import ROLES, check_rights

pytestmark = pytest.mark.proof  # each makes roles and a database of its own

SUPERUSER_RUNS = "as a superuser: "
LEDGER = """
    CREATE SCHEMA wheelsched;
    CREATE TABLE wheelsched.migrations (
        number integer PRIMARY KEY, name text NOT NULL, digest text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
"""
# Every owner, every right and every policy that the schema has.
SNAPSHOT = """
    SELECT relname::text, relowner::regrole::text, relrowsecurity::text, held.grantee::text,
        held.grantor::text, held.privilege_type
    FROM pg_class LEFT JOIN LATERAL aclexplode(coalesce(relacl, acldefault('r', relowner))) AS held
        ON true
    WHERE relnamespace = 'wheelsched'::regnamespace AND relkind IN ('r', 'p')
    UNION ALL
    SELECT attrelid::regclass::text, attname::text, NULL, held.grantee::text, held.grantor::text,
        held.privilege_type
    FROM pg_attribute CROSS JOIN LATERAL aclexplode(attacl) AS held
    WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'wheelsched'::regnamespace)
    UNION ALL
    SELECT pg_proc.oid::regprocedure::text, proowner::regrole::text, NULL, held.grantee::text,
        held.grantor::text, held.privilege_type
    FROM pg_proc CROSS JOIN LATERAL aclexplode(coalesce(proacl, acldefault('f', proowner))) AS held
    WHERE pronamespace = 'wheelsched'::regnamespace
    UNION ALL
    SELECT nspname::text, nspowner::regrole::text, NULL, held.grantee::text, held.grantor::text,
        held.privilege_type
    FROM pg_namespace CROSS JOIN LATERAL aclexplode(coalesce(nspacl, acldefault('n', nspowner)))
        AS held
    WHERE nspname = 'wheelsched'
    UNION ALL
    SELECT tablename::text, policyname::text, permissive, roles::text, cmd, qual || with_check
    FROM pg_policies WHERE schemaname = 'wheelsched'
"""
NAMED = """
    SELECT oid::text, rolname::text FROM pg_roles
"""
# What a restore leaves that could not name the roles: everything is its account's, nothing granted.
FORGET_RIGHTS = "DROP OWNED BY wheelsched_shard, wheelsched_api"
FORGET_ROLES = f"""
    REASSIGN OWNED BY wheelsched_owner TO operator;
    {FORGET_RIGHTS};
    DROP OWNED BY wheelsched_owner;
    DROP ROLE wheelsched_owner, wheelsched_shard, wheelsched_api
"""


@pytest.fixture
def server() -> Iterator[str]:
    with temporary_server() as started:
        yield started.url


@pytest.fixture
async def administration(server: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(server)
    yield connection
    await connection.close()


async def make_account(administration: Connection, server: str, name: str, rights: str) -> str:
    """An account with a database of its own, and the address of both."""
    await administration.execute(f"CREATE ROLE {name} LOGIN {rights}")
    await administration.execute(f"CREATE DATABASE of_{name} OWNER {name}")
    return as_account(with_database(server, f"of_{name}"), name)


def as_account(url: str, name: str) -> str:
    return url.replace("postgresql://wheelsched@", f"postgresql://{name}@")


def statements_in(refusal: pytest.ExceptionInfo[RightMissing]) -> str:
    said = str(refusal.value)
    assert SUPERUSER_RUNS in said
    return said.partition(SUPERUSER_RUNS)[2]


async def rights(url: str) -> set[tuple[str, ...]]:
    connection = await asyncpg.connect(url)
    names = {row[0]: row[1] for row in await connection.fetch(NAMED)}
    found = {
        tuple(names.get(str(value), str(value)) for value in row)
        for row in await connection.fetch(SNAPSHOT)
    }
    await connection.close()
    return found


def superuser_url(url: str) -> str:
    return "postgresql://wheelsched@" + url.partition("@")[2]


async def test_roles_that_are_there_are_not_made_again(
    server: str, administration: Connection
) -> None:
    url = await make_account(administration, server, "operator", "NOCREATEROLE")
    for role in ROLES:
        await administration.execute(f"CREATE ROLE {role} NOLOGIN")
    await administration.execute("GRANT wheelsched_owner TO operator")
    assert len((await migrate_database(url)).applied) == len(known_migrations())
    assert await migrate_database(url) == MigrationReport(applied=[], repaired=[])


async def test_an_account_that_may_not_create_roles_gets_the_statements(
    server: str, administration: Connection
) -> None:
    url = await make_account(administration, server, "operator", "NOCREATEROLE")
    with pytest.raises(RightMissing, match="may not create roles") as refusal:
        await migrate_database(url)
    assert "CREATE ROLE wheelsched_shard NOLOGIN;" in str(refusal.value)
    await administration.execute(statements_in(refusal))
    assert len((await migrate_database(url)).applied) == len(known_migrations())


async def test_an_account_that_may_not_create_a_schema_gets_the_missing_grant(
    server: str, administration: Connection
) -> None:
    await administration.execute('CREATE ROLE "Op" LOGIN CREATEROLE')
    await administration.execute("CREATE DATABASE shared")
    url = as_account(with_database(server, "shared"), "Op")
    with pytest.raises(RightMissing, match="may not create a schema") as refusal:
        await migrate_database(url)
    await administration.execute(statements_in(refusal))
    assert len((await migrate_database(url)).applied) == len(known_migrations())


async def test_a_second_installation_works_or_is_told_the_grant(
    server: str, administration: Connection
) -> None:
    first = await make_account(administration, server, "first", "CREATEROLE")
    second = await make_account(administration, server, "second", "CREATEROLE")
    await migrate_database(first)
    version = await administration.fetchval("SHOW server_version_num")
    if int(version) >= 160_000:
        with pytest.raises(RightMissing, match="not a member of the role") as refusal:
            await migrate_database(second)
        assert "GRANT wheelsched_owner TO second" in str(refusal.value)
        await administration.execute(statements_in(refusal))
    await migrate_database(second)
    snapshot = await rights(second)
    assert snapshot == await rights(first)


async def test_an_account_outside_a_role_gets_the_missing_grant(
    server: str, administration: Connection
) -> None:
    await migrate_database(server)
    await administration.execute('CREATE ROLE "the shard" LOGIN')
    config = StoreConfig(url=as_account(server, "the%20shard"), role="shard")
    with pytest.raises(RightMissing, match="may not use the role wheelsched_shard") as refusal:
        await Database.open(config)
    await administration.execute(statements_in(refusal))
    await (await Database.open(config)).close()


async def test_a_restore_without_roles_is_repaired(server: str, administration: Connection) -> None:
    url = await make_account(administration, server, "operator", "CREATEROLE")
    await migrate_database(url)
    before = await rights(url)
    in_database = await asyncpg.connect(superuser_url(url))
    await in_database.execute(FORGET_ROLES)
    await in_database.close()
    for role in ("shard", "api", "owner"):
        with pytest.raises(SchemaTooOld, match=f"no role wheelsched_{role}; run `wheelsched db mi"):
            await Database.open(StoreConfig(url=url, role=role))
    report = await migrate_database(url)
    assert report.applied == []
    assert {f"CREATE ROLE {role} NOLOGIN" for role in ROLES} < set(report.repaired)
    assert await rights(url) == before
    for role in ("shard", "api"):
        config = StoreConfig(url=url, role=role)  # type: ignore[arg-type]
        with pytest.raises(RightMissing, match="may not use the role") as refusal:
            await Database.open(config)
        await administration.execute(statements_in(refusal))
        await (await Database.open(config)).close()


async def test_missing_rights_are_reported_and_repaired(
    server: str, administration: Connection
) -> None:
    await migrate_database(server)
    before = await rights(server)
    shard = StoreConfig(url=server, role="shard")
    for damage in (
        FORGET_RIGHTS,
        "DROP POLICY shard ON wheelsched.jobs",
        "REVOKE UPDATE (state) ON wheelsched.jobs FROM wheelsched_shard",
        "REVOKE EXECUTE ON FUNCTION wheelsched.cancel(uuid) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION wheelsched.find_token(bytea) TO PUBLIC",
        "ALTER TABLE wheelsched.runs DISABLE ROW LEVEL SECURITY",
        "REVOKE USAGE ON SCHEMA wheelsched FROM wheelsched_shard, PUBLIC",
    ):
        await administration.execute(damage)
        with pytest.raises(RightMissing, match="wheelsched db migrate"):
            await Database.open(shard)
        report = await migrate_database(server)
        assert (report.applied, bool(report.repaired)) == ([], True), damage
        assert await rights(server) == before, damage
        await (await Database.open(shard)).close()


async def test_the_rights_are_those_that_the_migrations_give(
    server: str, administration: Connection
) -> None:
    """Migrations alone leave nothing to repair, and repairs alone give all that they give."""
    await administration.execute(LEDGER)
    await administration.execute("SET search_path = wheelsched")
    async with administration.transaction():
        for migration in known_migrations():
            await administration.execute(migration.sql)
    await check_rights(administration)
    before = await rights(server)
    await administration.execute("DROP SCHEMA wheelsched CASCADE")
    await administration.execute("RESET search_path")
    await migrate(administration)
    assert await rights(server) == before


async def test_where_nothing_is_missing_nothing_waits(
    server: str, administration: Connection
) -> None:
    await migrate_database(server)
    reader = await asyncpg.connect(server)
    async with reader.transaction():
        await reader.fetch("SELECT FROM wheelsched.jobs, wheelsched.runs, wheelsched.timers")
        await administration.execute("SET lock_timeout = '1s'")
        assert await migrate(administration) == Migrated([], [])
    await reader.close()
