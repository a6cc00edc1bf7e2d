from collections.abc import AsyncIterator

import pytest

from wheelsched.aio import AsyncWheel
from wheelsched.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000_000_000_000)


@pytest.fixture
async def wheel(clock: VirtualClock) -> AsyncIterator[AsyncWheel[object]]:
    """A wheel in virtual time; what a test leaves pending is its own business."""
    wheel: AsyncWheel[object] = AsyncWheel(clock)
    yield wheel
    wheel.close()
