"""The dispatcher of a target is chosen by the target's type."""

from uuid import UUID

import pytest

from wheelsched.core.model import HttpTarget, QueueTarget
from wheelsched.delivery.dispatchers import Dispatchers
from wheelsched.delivery.queue.dispatcher import QueueDispatcher, QueueRoute
from wheelsched.testing import VirtualClock
from wheelsched.testing.dispatcher import MemoryDispatcher


@pytest.fixture
async def dispatchers() -> Dispatchers:
    clock = VirtualClock()
    return Dispatchers(MemoryDispatcher(clock), QueueDispatcher(clock))


async def test_a_url_is_called_and_a_queue_is_handed_out(dispatchers: Dispatchers) -> None:
    called = dispatchers.route(UUID(int=1), HttpTarget(url="http://worker.example/", batch=7))
    handed_out = dispatchers.route(UUID(int=1), QueueTarget(queue="a"))
    assert (called.room, called.batch) == (None, 7)
    assert isinstance(handed_out, QueueRoute)
