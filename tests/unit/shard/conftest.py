"""The world of most tests of the pipeline: in virtual time, on the daemon's loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from tests.unit.shard.world import World


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world
