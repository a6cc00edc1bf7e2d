"""The API on Postgres, with the rights of its own role; and a shard beside it."""

from collections.abc import AsyncIterator

import pytest
from tests.api import Api, serve
from tests.postgres import TIMEOUTS

from wheelsched.config import StoreConfig
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with (
        await Database.open(StoreConfig(url=database, role="api", **TIMEOUTS)) as as_api,
        await Database.open(StoreConfig(url=database, role="shard", **TIMEOUTS)) as as_shard,
        serve(PostgresStore(as_api), PostgresStore(as_shard)) as served,
    ):
        yield served
