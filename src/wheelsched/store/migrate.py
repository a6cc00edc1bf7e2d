"""Before every stage: brings the schema of a database to the one that this program knows.

Invariant: migrations go forward only, each one once, whoever runs them at the same time.

All that are missing are applied in one transaction, under a lock on the ledger: a database is
never between two schemas, and of many programs that start together one migrates while the
others wait and then find nothing to do. Roles, owners and rights are looked up each time, and
repaired where they are not as the migrations made them.
"""

import hashlib
from importlib.resources import files

import asyncpg
from msgspec import Struct

from wheelsched.errors import RightMissing, SchemaDiverged, SchemaTooNew, SchemaTooOld
from wheelsched.store.connection import Connection
from wheelsched.store.failure import named_failures
from wheelsched.store.queries import load_queries
from wheelsched.store.rights import (
    Account,
    give_rights,
    make_roles,
    read_account,
    take_ownership,
)

QUERIES = load_queries("migrate.sql")
BOOTSTRAP_ATTEMPTS = 10
# The first migration creates the roles, and fails for an account that may not, even where they are
# there. All that it does is done before the others, and after them, by `rights`.
MADE_BY_RIGHTS = 1


class Migration(Struct, frozen=True):
    """One file of `store/migrations`."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()[:16]


def known_migrations() -> list[Migration]:
    """What this program can apply, in order."""
    found = []
    for path in (files(__package__) / "migrations").iterdir():
        if path.name.endswith(".sql"):
            number, _, name = path.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, path.read_text("utf-8")))
    return sorted(found, key=lambda migration: migration.number)


async def migrate(connection: Connection) -> list[Migration]:
    """Applies what is missing, and returns it; repairs roles and rights."""
    with named_failures():
        account = await read_account(connection)
        await make_roles(connection, account)
        try:
            await _make_ledger(connection)
            return await _migrate(connection)
        except asyncpg.InsufficientPrivilegeError as error:
            raise _not_allowed(account, error) from error


async def _migrate(connection: Connection) -> list[Migration]:
    async with connection.transaction():
        await connection.execute(QUERIES["lock_ledger"])
        missing = await _missing(connection)
        await connection.execute(QUERIES["use_schema"])
        await take_ownership(connection)
        await connection.execute(QUERIES["become_owner"])
        for migration in missing:
            if migration.number != MADE_BY_RIGHTS:
                await connection.execute(migration.sql)
            await connection.execute(
                QUERIES["note_migration"], migration.number, migration.name, migration.digest
            )
        await give_rights(connection)
    return missing


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
    """What `migrate` would apply."""
    if not await connection.fetchval(QUERIES["has_ledger"]):
        return known_migrations()
    return await _missing(connection)


async def check_schema(connection: Connection) -> None:
    """Refuses a database whose schema is not the one that this program was written for."""
    missing = await pending(connection)
    if missing:
        names = ", ".join(f"{migration.number:04}_{migration.name}" for migration in missing)
        raise SchemaTooOld(f"the database lacks {names}; run `wheelsched db migrate`")


async def _make_ledger(connection: Connection) -> None:
    """`IF NOT EXISTS` does not hold against another session that is at the same line."""
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
                f"the database has migration {row['number']:04}_{row['name']}, which this program "
                f"does not know: it knows up to {known[-1].number:04}; install a newer one"
            )
        if migration.digest != row["digest"]:
            raise SchemaDiverged(
                f"migration {migration.number:04}_{migration.name} was applied to the database "
                "with other contents"
            )
    return sorted(by_number.values(), key=lambda migration: migration.number)
