"""Keys of links on Postgres: they expire by the clock of the database."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tests.postgres import Connect

from wheelsched.config import StoreConfig
from wheelsched.ports import PUBLISHED_US
from wheelsched.store.connections.database import Database
from wheelsched.store.links import PostgresLinks

AGE = "UPDATE api_processes SET seen_at = seen_at - $2 * interval '1 us' WHERE process_id = $1"


@pytest.fixture
async def links(database: str) -> AsyncIterator[PostgresLinks]:
    async with await Database.open(StoreConfig(url=database, role="api")) as opened:
        yield PostgresLinks(opened)


async def test_a_key_that_is_not_published_again_is_forgotten(
    database: str, links: PostgresLinks, connect: Connect
) -> None:
    owner = await connect(database)
    process_id, other_id = uuid4(), uuid4()
    await links.publish(process_id, b"key")
    await owner.execute(AGE, process_id, PUBLISHED_US // 2)
    assert await links.key_of(process_id) == b"key"
    await owner.execute(AGE, process_id, PUBLISHED_US)
    assert await links.key_of(process_id) is None
    await links.publish(other_id, b"other")
    rows = await owner.fetch("SELECT process_id FROM api_processes")
    assert [row["process_id"] for row in rows] == [other_id]
