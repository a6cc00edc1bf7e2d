"""Hypothesis profiles: `default` for `make test`, `long` for `make test-long`, and the databases.

No profile has a deadline: a test never depends on how fast the machine is.
"""

import asyncio
import functools
import inspect
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.postgres import Connect, temporary_database, temporary_server, with_database

from wheelsched.store.connections.connection import Connection, use_plain_values
from wheelsched.store.schema.migrate import migrate

settings.register_profile(
    "default",
    max_examples=100,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("default"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Of pytest's timeout. An async test ends itself before, because pytest raises an exception in a
# signal handler, and uvloop only logs it.
ASYNC_SHARE = 0.9

# What takes longest comes first: all others would wait for a long file that was begun last. The
# simulation takes all cores, so it comes after the tests of real processes.
FIRST = (
    "tests/faults/test_soak.py",
    "tests/faults/",
    "tests/ha/",
    "tests/e2e/",
    "tests/sim/",
    "tests/integration/",
    "tests/unit/shard/recovery/test_many_orphans.py",
    "tests/unit/api/openapi/test_against_openapi.py",
    "tests/property/",
    "tests/contract/",
)


def pytest_configure() -> None:
    """Starts processes as a shell does, even if the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    timeout_s = float(config.getoption("timeout") or config.getini("timeout"))
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            own = item.get_closest_marker("timeout")
            item.obj = _in_time(item.obj, (own.args[0] if own else timeout_s) * ASYNC_SHARE)


def _in_time(test: Callable[..., Awaitable[None]], timeout_s: float) -> Callable[..., Any]:
    @functools.wraps(test)
    async def run(*args: object, **fixtures: object) -> None:
        async with asyncio.timeout(timeout_s):
            await test(*args, **fixtures)

    return run


def _turn(item: pytest.Item) -> int:
    found = (turn for turn, path in enumerate(FIRST) if item.nodeid.startswith(path))
    return next(found, len(FIRST))


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Whatever another test has made of the logs, this one sees all of them."""
    structlog.reset_defaults()
    logging.getLogger().setLevel(logging.WARNING)  # a command that ran in this process raises it


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """One server for the whole session."""
    with temporary_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def template(server_url: str) -> str:
    """The name of a migrated database to copy, with the tables of the days around this one."""
    asyncio.run(_make_template(server_url))
    return "migrated"


@pytest.fixture
async def empty_database(server_url: str) -> AsyncIterator[str]:
    async with temporary_database(server_url) as url:
        yield url


@pytest.fixture
async def database(server_url: str, template: str) -> AsyncIterator[str]:
    """The address of a migrated database of the test's own."""
    async with temporary_database(server_url, template) as url:
        yield url


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections that end with the test. They see the schema without its name."""
    opened: list[Connection] = []

    async def open_one(url: str, **settings: str) -> Connection:
        options = {"search_path": "wheelsched"} | settings
        connection = await asyncpg.connect(url, server_settings=options, command_timeout=60)
        await use_plain_values(connection)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.terminate()


async def _make_template(server_url: str) -> None:
    administration = await asyncpg.connect(server_url)
    await administration.execute("CREATE DATABASE migrated TEMPLATE template0")
    await administration.close()
    connection = await asyncpg.connect(with_database(server_url, "migrated"))
    await migrate(connection)
    await connection.execute(
        "SELECT wheelsched.make_days(ARRAY(SELECT current_date + n FROM generate_series(-1, 2) n))"
    )
    await connection.close()
