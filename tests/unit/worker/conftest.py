from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.postgres import Connect

from wheelsched.store.connections.connection import Connection
from wheelsched.worker.postgres import Pool


@pytest.fixture
async def observer(empty_database: str, connect: Connect) -> Connection:
    """A connection that reads what is committed in the user's database."""
    return await connect(empty_database, search_path="public")


@pytest.fixture
async def pool(empty_database: str) -> AsyncIterator[Pool]:
    """The user's own pool."""
    pool = await asyncpg.create_pool(empty_database, min_size=0, max_size=4, command_timeout=60)
    yield pool
    pool.terminate()
