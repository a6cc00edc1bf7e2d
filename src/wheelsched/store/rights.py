"""The roles of an installation, and what each of them may do: made, looked up and repaired.

Invariant: after `give_rights` the roles have exactly the rights that the migrations give them,
whatever was restored, and where nothing is missing it changes nothing and locks nothing.

Roles belong to a whole server. They may have been made by an administrator, by the installation in
another database, or by one that is being made at this moment.
"""

import asyncpg
from msgspec import Struct

from wheelsched.errors import RightMissing
from wheelsched.store.connection import Connection
from wheelsched.store.queries import load_queries

QUERIES = load_queries("rights.sql")
ROLES = ("wheelsched_owner", "wheelsched_shard", "wheelsched_api")
MEMBERSHIP_HAS_OPTIONS = 160_000  # from Postgres 16 on


class Account(Struct, frozen=True):
    """The account that migrates. Names are quoted where SQL needs it."""

    name: str
    database: str
    version: int

    @property
    def needed(self) -> list[str]:
        """What `pg_has_role` must say of the account and the owner's role."""
        return ["SET", "USAGE"] if self.version >= MEMBERSHIP_HAS_OPTIONS else ["MEMBER"]

    def membership(self, role: str = "wheelsched_owner") -> str:
        """The statement that lets the account use a role.

        Who made a role is a member of it that may not use it, and stays so after a GRANT that does
        not name the options.
        """
        has_options = self.version >= MEMBERSHIP_HAS_OPTIONS
        return f"GRANT {role} TO {self.name}" + " WITH INHERIT TRUE, SET TRUE" * has_options

    def refused(self, reason: str, *statements: str) -> RightMissing:
        """What the account lacks, and the statements that give it that."""
        script = " ".join(f"{statement};" for statement in statements)
        return RightMissing(f"the database account {self.name} {reason}; as a superuser: {script}")


async def read_account(connection: Connection) -> Account:
    """Who is connected, to what."""
    row = await connection.fetchrow(QUERIES["read_account"])
    assert row
    return Account(**row)


async def make_roles(connection: Connection, account: Account) -> None:
    """Makes the roles that are missing, and the account a member of the owner's role; or raises
    `RightMissing` with the statements for an administrator."""
    missing = [
        row["wanted"] for row in await connection.fetch(QUERIES["list_missing_roles"], ROLES)
    ]
    statements = [f"CREATE ROLE {role} NOLOGIN" for role in missing]
    for statement in statements:
        try:
            async with connection.transaction():
                await connection.execute(statement)
        except (asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            continue  # another database has it made at this moment
        except asyncpg.InsufficientPrivilegeError as error:
            reason = f"may not create roles, and {', '.join(missing)} must be there"
            raise account.refused(reason, *statements, account.membership()) from error
    if await connection.fetchval(QUERIES["is_owner"], account.needed):
        return
    try:
        async with connection.transaction():
            await connection.execute(account.membership())
    except asyncpg.InsufficientPrivilegeError as error:
        reason = "is not a member of the role wheelsched_owner and may not make itself one"
        raise account.refused(reason, account.membership()) from error


async def take_ownership(connection: Connection) -> None:
    """Makes everything in the schema the owner's."""
    await _run_each(connection, QUERIES["list_foreign"])


async def give_rights(connection: Connection) -> None:
    """Gives the roles the rights that they lack."""
    await _run_each(connection, QUERIES["list_missing_rights"])


async def check_rights(connection: Connection) -> None:
    """Raises `RightMissing` when the roles lack a right, e.g. after a restore without them."""
    missing = [row[0] for row in await connection.fetch(QUERIES["list_missing_rights"])]
    if missing:
        raise RightMissing(
            f"{len(missing)} rights of the database roles are missing, e.g. after a restore "
            f"without roles; run `wheelsched db migrate` (first: {missing[0]})"
        )


async def _run_each(connection: Connection, writer: str) -> None:
    """Runs the statements that a statement writes."""
    for (statement,) in await connection.fetch(writer):
        await connection.execute(statement)
