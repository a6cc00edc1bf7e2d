"""Before every stage: brings the schema of a database to the one that this program knows.

Invariant: migrations go forward only, each one once, whoever runs them at the same time.

All that are missing are applied in one transaction, under a lock on the ledger: a database is
never between two schemas, and of many programs that start together one migrates while the
others wait and then find nothing to do.
"""

import hashlib
from importlib.resources import files

import asyncpg
from msgspec import Struct

from wheelsched.errors import SchemaDiverged, SchemaTooNew, SchemaTooOld
from wheelsched.store.connection import Connection
from wheelsched.store.failure import named_failures
from wheelsched.store.queries import load_queries

QUERIES = load_queries("migrate.sql")
BOOTSTRAP_ATTEMPTS = 10


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
    """Applies what is missing, and returns it."""
    with named_failures():
        await _make_ledger(connection)
        async with connection.transaction():
            await connection.execute(QUERIES["lock_ledger"])
            missing = await _missing(connection)
            await connection.execute(QUERIES["use_schema"])
            for migration in missing:
                await connection.execute(migration.sql)
                await connection.execute(
                    QUERIES["note_migration"], migration.number, migration.name, migration.digest
                )
    return missing


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
