"""The settings of an installation, on Postgres: one row that every process reads.

Invariant: stored settings are within their bounds. A change takes effect without a restart, when
a process next reads the settings.
"""

from msgspec import Struct
from msgspec.structs import asdict, replace

from wheelsched.core.audit import Entry
from wheelsched.errors import InvalidSetting
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.for_api.audit import note

QUERIES = load_queries("settings.sql")
MIN_DAYS = 1
MAX_DAYS = 3_650


class Settings(Struct, frozen=True, kw_only=True):
    """How many days runs with their attempts, dead runs, and finished jobs are kept."""

    history_days: int = 30
    dead_days: int = 90
    finished_days: int = 7


async def read_settings(connection: Connection | Database) -> Settings:
    """The current settings."""
    row = await connection.fetchrow(QUERIES["read_settings"])
    assert row
    return Settings(**row)


async def change_settings(database: Database, actor: str, changes: dict[str, int]) -> Settings:
    """Changes some settings and returns all, or raises `InvalidSetting` and changes none."""
    async with database.connection() as connection, connection.transaction():
        row = await connection.fetchrow(QUERIES["lock_settings"])
        assert row
        settings = replace(Settings(**row), **changes)
        check(settings)
        await connection.execute(QUERIES["write_settings"], *asdict(settings).values())
        await note(connection, None, actor, Entry("settings.change", "settings", dict(changes)))
    return settings


def check(settings: Settings) -> None:
    """Raises `InvalidSetting` with every problem of the settings."""
    problems = [
        f"{name} is {days}; expected {MIN_DAYS} to {MAX_DAYS:,} days"
        for name, days in asdict(settings).items()
        if not MIN_DAYS <= days <= MAX_DAYS
    ]
    if settings.dead_days < settings.history_days:
        problems.append(
            f"dead_days ({settings.dead_days}) is less than history_days "
            f"({settings.history_days}); dead runs are kept at least as long as all others"
        )
    if problems:
        raise InvalidSetting("; ".join(problems))
