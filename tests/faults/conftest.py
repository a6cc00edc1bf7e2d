"""A server for the experiments of a test session: durable, unlike that of the other tests."""

import asyncio
import shutil
from collections.abc import Iterator

import pytest
from tests.faults.server import Server
from tests.postgres import reachable_directory


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    home = reachable_directory()
    server = Server(home)
    asyncio.run(_begin(server))
    yield server
    asyncio.run(server.kill())
    shutil.rmtree(home)


async def _begin(server: Server) -> None:
    await server.start()
    await server.make_template()
