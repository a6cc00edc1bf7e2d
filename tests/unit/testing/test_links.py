"""Keys of links in memory: they expire by the clock of the store."""

from uuid import uuid4

from wheelsched.ports import PUBLISHED_US
from wheelsched.testing import MemoryStore


async def test_a_key_that_is_not_published_again_is_forgotten() -> None:
    now_us = 0
    store = MemoryStore(lambda: now_us)
    process_id, other_id = uuid4(), uuid4()
    await store.links.publish(process_id, b"key")
    now_us = PUBLISHED_US
    assert await store.links.key_of(process_id) == b"key"
    now_us += 1
    assert await store.links.key_of(process_id) is None
    await store.links.publish(other_id, b"other")
    now_us = 0
    assert await store.links.key_of(process_id) is None
