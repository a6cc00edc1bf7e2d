"""A Postgres for the tests: one server per session, one database per test, from a template."""

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from wheelsched.config import EmbeddedConfig
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.store.connections.connection import Connection


class Connect(Protocol):
    async def __call__(self, url: str, **settings: str) -> Connection: ...


# For a `StoreConfig`: no statement times out because the machine is busy.
TIMEOUTS = {
    "command_timeout_ms": 60_000,
    "lease_timeout_ms": 60_000,
    "connect_timeout_ms": 60_000,
}

_numbers = itertools.count()


def reachable_directory() -> Path:
    """An empty directory that the server's account can enter; pytest's own are closed to it."""
    directory = Path(tempfile.mkdtemp(prefix="wheelsched-"))
    directory.chmod(0o711)
    return directory


@contextmanager
def temporary_server(**settings: str) -> Iterator[EmbeddedPostgres]:
    """A server that forgets: nothing of it is synced to disk unless the settings say so."""
    home = reachable_directory()
    config = EmbeddedConfig(
        home=home, settings={"fsync": "off", "full_page_writes": "off"} | settings
    )
    try:
        with EmbeddedPostgres.start(config) as server:
            yield server
    finally:
        shutil.rmtree(home)


def with_database(url: str, name: str) -> str:
    """The address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@asynccontextmanager
async def temporary_database(url: str, template: str = "template0") -> AsyncIterator[str]:
    """The address of a new database, a copy of the template."""
    name = f"test_{next(_numbers)}"
    administration = await asyncpg.connect(url)
    try:
        # By its files: a third of the time of a copy that goes through the log.
        await administration.execute(
            f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        )
        yield with_database(url, name)
        await administration.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administration.close()
