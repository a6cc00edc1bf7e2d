"""The database roles of an installation and their rights: created, checked and repaired.

Invariant: after `grant_rights` the roles have exactly the rights that the migrations grant, also
after a restore. If nothing is missing, it changes and locks nothing.

Roles belong to the whole server. They may have been created by an administrator, or by an
installation in another database, perhaps at the same time.
"""

import asyncpg
from msgspec import Struct

from wheelsched.errors import RightMissing
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("rights.sql")
ROLES = ("wheelsched_owner", "wheelsched_shard", "wheelsched_api")
MEMBERSHIP_HAS_OPTIONS = 160_000  # from Postgres 16 on


class Account(Struct, frozen=True):
    """The account that migrates. Its names are quoted for SQL."""

    name: str
    database: str
    version: int

    @property
    def needed(self) -> list[str]:
        """The privileges on the owner's role that the account needs, as in `pg_has_role`."""
        return ["SET", "USAGE"] if self.version >= MEMBERSHIP_HAS_OPTIONS else ["MEMBER"]

    def membership(self, role: str = "wheelsched_owner") -> str:
        """The statement that lets the account use a role.

        The creator of a role is a member without the right to use it. A GRANT changes that only if
        it names the options.
        """
        has_options = self.version >= MEMBERSHIP_HAS_OPTIONS
        return f"GRANT {role} TO {self.name}" + " WITH INHERIT TRUE, SET TRUE" * has_options

    def refused(self, reason: str, *statements: str) -> RightMissing:
        """The error for a missing right, with the statements that grant it."""
        script = " ".join(f"{statement};" for statement in statements)
        return RightMissing(f"the database account {self.name} {reason}; as a superuser: {script}")


async def read_account(connection: Connection) -> Account:
    """The account and the database of a connection."""
    row = await connection.fetchrow(QUERIES["read_account"])
    assert row
    return Account(**row)


async def create_roles(connection: Connection, account: Account) -> list[str]:
    """Creates the missing roles, and makes the account a member of the owner's role. Returns the
    statements; or raises `RightMissing` with them, for an administrator."""
    missing = [
        row["wanted"] for row in await connection.fetch(QUERIES["list_missing_roles"], ROLES)
    ]
    statements = [f"CREATE ROLE {role} NOLOGIN" for role in missing]
    done = []
    for statement in statements:
        try:
            async with connection.transaction():
                await connection.execute(statement)
            done.append(statement)
        except (asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            continue  # an installation in another database created it at the same time
        except asyncpg.InsufficientPrivilegeError as error:
            reason = f"may not create roles, but {', '.join(missing)} must exist"
            raise account.refused(reason, *statements, account.membership()) from error
    if await connection.fetchval(QUERIES["is_owner"], account.needed):
        return done
    try:
        async with connection.transaction():
            await connection.execute(account.membership())
    except asyncpg.InsufficientPrivilegeError as error:
        reason = "is not a member of the role wheelsched_owner and may not grant it to itself"
        raise account.refused(reason, account.membership()) from error
    return [*done, account.membership()]


async def take_ownership(connection: Connection) -> list[str]:
    """Makes the owner's role the owner of everything in the schema. Returns the statements."""
    return await _run_each(connection, QUERIES["list_foreign"])


async def grant_rights(connection: Connection) -> list[str]:
    """Grants the roles the rights that they lack. Returns the statements."""
    return await _run_each(connection, QUERIES["list_missing_rights"])


async def check_rights(connection: Connection) -> None:
    """Raises `RightMissing` if the roles lack a right, e.g. after a restore without roles."""
    missing = [row[0] for row in await connection.fetch(QUERIES["list_missing_rights"])]
    if missing:
        raise RightMissing(
            f"{len(missing)} rights of the database roles are missing, e.g. after a restore "
            f"without roles; run `wheelsched db migrate` (first: {missing[0]})"
        )


async def _run_each(connection: Connection, writer: str) -> list[str]:
    """Executes the statements that a query generates, and returns them."""
    statements = [row[0] for row in await connection.fetch(writer)]
    for statement in statements:
        await connection.execute(statement)
    return statements
