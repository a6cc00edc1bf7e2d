from collections.abc import AsyncIterator

import pytest

from wheelsched.aio import AsyncWheel
from wheelsched.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000_000_000_000)


@pytest.fixture
async def wheel(clock: VirtualClock) -> AsyncIterator[AsyncWheel[object]]:
    """A wheel in virtual time. Pending timers at the end are allowed."""
    wheel: AsyncWheel[object] = AsyncWheel(clock)
    yield wheel
    wheel.close()
