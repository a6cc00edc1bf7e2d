import time
from collections.abc import AsyncIterator

import pytest
from tests.api import Api, serve

from wheelsched.testing import MemoryStore


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store) as served:
        yield served
