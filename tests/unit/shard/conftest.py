"""The world that most tests of the pipeline live in."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.shard.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world
