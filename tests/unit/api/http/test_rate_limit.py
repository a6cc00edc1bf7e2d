from uuid import UUID, uuid4

import pytest

from wheelsched.api.http.rate_limit import SECOND_NS, RateLimit
from wheelsched.errors import RateExceeded
from wheelsched.testing import VirtualClock

TENANT = UUID(int=7)


def spent(rates: RateLimit, times: int, rate: int) -> int:
    """How many of these requests are admitted."""
    answered = 0
    for _ in range(times):
        try:
            rates.spend(TENANT, rate)
        except RateExceeded:
            continue
        answered += 1
    return answered


async def test_a_burst_of_one_second_is_allowed() -> None:
    clock = VirtualClock()
    rates = RateLimit(clock)
    assert spent(rates, 100, rate=10) == 10
    for _ in range(5):
        await clock.advance(SECOND_NS // 2)
        assert spent(rates, 100, rate=10) == 5
    await clock.advance(100 * SECOND_NS)
    assert spent(rates, 100, rate=10) == 10


async def test_a_caller_that_waits_retry_after_is_admitted() -> None:
    clock = VirtualClock()
    rates = RateLimit(clock)
    assert spent(rates, 5, rate=1) == 1
    with pytest.raises(RateExceeded) as caught:
        rates.spend(TENANT, 1)
    await clock.advance(caught.value.retry_after_s * SECOND_NS)
    rates.spend(TENANT, 1)


async def test_rate_limits_are_separate_per_tenant() -> None:
    clock = VirtualClock()
    rates = RateLimit(clock)
    assert spent(rates, 3, rate=1) == 1
    for _ in range(20_000):
        rates.spend(uuid4(), 1_000)
    assert spent(rates, 3, rate=1) == 0
    await clock.advance(SECOND_NS)
    for _ in range(10_001):
        rates.spend(uuid4(), 1_000)
    assert spent(rates, 3, rate=1) == 1
