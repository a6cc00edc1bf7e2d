from uuid import UUID, uuid4

import pytest

from wheelsched.api.rates import SECOND_NS, Rates
from wheelsched.errors import RateExceeded
from wheelsched.testing import VirtualClock

TENANT = UUID(int=7)


def spent(rates: Rates, times: int, rate: int) -> int:
    """How many of so many requests are answered."""
    answered = 0
    for _ in range(times):
        try:
            rates.spend(TENANT, rate)
        except RateExceeded:
            continue
        answered += 1
    return answered


async def test_a_second_may_be_spent_at_once_and_then_the_rate() -> None:
    clock = VirtualClock()
    rates = Rates(clock)
    assert spent(rates, 100, rate=10) == 10
    for _ in range(5):
        await clock.advance(SECOND_NS // 2)
        assert spent(rates, 100, rate=10) == 5
    await clock.advance(100 * SECOND_NS)
    assert spent(rates, 100, rate=10) == 10


async def test_who_waits_as_told_is_answered() -> None:
    clock = VirtualClock()
    rates = Rates(clock)
    assert spent(rates, 5, rate=1) == 1
    with pytest.raises(RateExceeded) as caught:
        rates.spend(TENANT, 1)
    await clock.advance(caught.value.retry_after_s * SECOND_NS)
    rates.spend(TENANT, 1)


async def test_one_tenant_spends_nothing_of_another() -> None:
    clock = VirtualClock()
    rates = Rates(clock)
    assert spent(rates, 3, rate=1) == 1
    for _ in range(20_000):
        rates.spend(uuid4(), 1_000)
    assert spent(rates, 3, rate=1) == 0
    await clock.advance(SECOND_NS)
    for _ in range(10_001):
        rates.spend(uuid4(), 1_000)
    assert spent(rates, 3, rate=1) == 1
