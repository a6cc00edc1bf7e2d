"""Migrates the schema of a database to the version of this program.

Invariant: migrations go forward only, and each is applied once, even if several processes migrate
at the same time.

All missing migrations are applied in one transaction, under a lock on the ledger. So a database is
never between two versions, and of several processes that start together one migrates while the
others wait and then find nothing to do. Roles, owners and rights are checked each time, and
repaired if they differ from what the migrations created.
"""

import hashlib
from importlib.resources import files

import asyncpg
from msgspec import Struct

from wheelsched.errors import RightMissing, SchemaDiverged, SchemaTooNew, SchemaTooOld
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.failure import translated_errors
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.schema.rights import (
    Account,
    create_roles,
    grant_rights,
    read_account,
    take_ownership,
)

QUERIES = load_queries("migrate.sql")
BOOTSTRAP_ATTEMPTS = 10
# The first migration creates the roles, and would fail for an account that may not create any, even
# if they exist. So it is only recorded, and `rights` does its work.
DONE_BY_RIGHTS = 1


class Migration(Struct, frozen=True):
    """One file of `store/migrations`."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()[:16]


def known_migrations() -> list[Migration]:
    """The migrations of this program, in order."""
    found = []
    for path in (files("wheelsched.store") / "migrations").iterdir():
        if path.name.endswith(".sql"):
            number, _, name = path.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, path.read_text("utf-8")))
    return sorted(found, key=lambda migration: migration.number)


class Migrated(Struct, frozen=True):
    """What `migrate` has changed."""

    applied: list[Migration]
    repaired: list[str]  # statements that created roles, changed owners or granted rights


async def migrate(connection: Connection) -> Migrated:
    """Applies the missing migrations; repairs roles, owners and rights."""
    with translated_errors():
        account = await read_account(connection)
        created = await create_roles(connection, account)
        try:
            await _make_ledger(connection)
            migrated = await _migrate(connection)
        except asyncpg.InsufficientPrivilegeError as error:
            raise _not_allowed(account, error) from error
    return Migrated(migrated.applied, created + migrated.repaired)


async def _migrate(connection: Connection) -> Migrated:
    async with connection.transaction():
        await connection.execute(QUERIES["lock_ledger"])
        missing = await _missing(connection)
        await connection.execute(QUERIES["use_schema"])
        owned = await take_ownership(connection)
        await connection.execute(QUERIES["become_owner"])
        for migration in missing:
            if migration.number != DONE_BY_RIGHTS:
                await connection.execute(migration.sql)
            await connection.execute(
                QUERIES["note_migration"], migration.number, migration.name, migration.digest
            )
        granted = await grant_rights(connection)
    return Migrated(missing, owned + granted)


def _not_allowed(account: Account, error: asyncpg.PostgresError) -> RightMissing:
    if "permission denied for database" in str(error):
        reason = f"may not create a schema in the database {account.database}"
        statement = f"GRANT CREATE ON DATABASE {account.database} TO {account.name}"
        return account.refused(reason, statement)
    return RightMissing(
        f"the database account {account.name} may not migrate ({error}); run "
        "`wheelsched db migrate` as the account that owns the tables, or as a superuser"
    )


async def pending(connection: Connection) -> list[Migration]:
    """The migrations that `migrate` would apply."""
    if not await connection.fetchval(QUERIES["has_ledger"]):
        return known_migrations()
    return await _missing(connection)


async def check_schema(connection: Connection) -> None:
    """Raises `SchemaTooOld`, `SchemaTooNew` or `SchemaDiverged` unless the schema is current."""
    missing = await pending(connection)
    if missing:
        names = ", ".join(f"{migration.number:04}_{migration.name}" for migration in missing)
        raise SchemaTooOld(f"the database lacks migrations {names}; run `wheelsched db migrate`")


async def _make_ledger(connection: Connection) -> None:
    """Creates the ledger. `IF NOT EXISTS` does not prevent a race with another session."""
    for attempt in range(BOOTSTRAP_ATTEMPTS):
        if await connection.fetchval(QUERIES["has_ledger"]):
            return
        try:
            await connection.execute(QUERIES["make_ledger"])
        except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError):
            if attempt == BOOTSTRAP_ATTEMPTS - 1:
                raise


async def _missing(connection: Connection) -> list[Migration]:
    known = known_migrations()
    by_number = {migration.number: migration for migration in known}
    applied = await connection.fetch(QUERIES["read_ledger"])
    for row in applied:
        migration = by_number.pop(row["number"], None)
        if migration is None:
            raise SchemaTooNew(
                f"the database has migration {row['number']:04}_{row['name']}, but this version of "
                f"wheelsched knows migrations up to {known[-1].number:04}; install a newer version"
            )
        if migration.digest != row["digest"]:
            raise SchemaDiverged(
                f"migration {migration.number:04}_{migration.name} of the database differs from "
                "the one in this version of wheelsched"
            )
    return sorted(by_number.values(), key=lambda migration: migration.number)
