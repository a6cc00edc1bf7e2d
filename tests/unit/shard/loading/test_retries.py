import asyncio
from uuid import uuid4

from wheelsched.core.model import RunKey
from wheelsched.ports import Retry
from wheelsched.shard.loading.upcoming import Retries
from wheelsched.values.duration import SECOND

NOW = 1_800_000_000 * SECOND


def test_the_latest_retry_of_a_run_wins() -> None:
    retries = Retries(NOW, asyncio.Event())
    key = RunKey(uuid4(), NOW)
    retries.put(Retry(key, NOW + SECOND))
    retries.put(Retry(key, NOW + 3 * SECOND))
    retries.put(Retry(key, NOW + 3 * SECOND))
    assert len(retries) == 1
    assert retries.take(NOW + 2 * SECOND, 10) == []
    assert retries.take(NOW + 4 * SECOND, 10) == [Retry(key, NOW + 3 * SECOND)]
    assert len(retries) == 0


def test_an_entry_before_the_reached_time_comes_at_once() -> None:
    retries = Retries(NOW, asyncio.Event())
    assert retries.take(NOW + 60 * SECOND, 10) == []
    retry = Retry(RunKey(uuid4(), NOW), NOW + 10 * SECOND)
    retries.put(retry)
    assert retries.next_us() == 0
    assert retries.take(NOW + SECOND, 10) == [retry]


def test_some_of_many_retries_are_discarded() -> None:
    retries = Retries(NOW, asyncio.Event())
    keys = [RunKey(uuid4(), NOW) for _ in range(50)]
    for key in keys:
        retries.put(Retry(key, NOW + SECOND))
    assert set(retries) == set(keys)
    for key in keys[:25]:
        retries.discard(key)
    left = keys[25:]
    assert {retry.key for retry in retries.take(NOW + 2 * SECOND, 100)} == set(left)


def test_a_discarded_retry_is_never_taken() -> None:
    retries = Retries(NOW, asyncio.Event())
    key = RunKey(uuid4(), NOW)
    retries.put(Retry(key, NOW))
    retries.discard(key)
    retries.discard(key)
    assert retries.take(NOW + SECOND, 10) == []


def test_retries_work_after_the_clock_steps_back() -> None:
    retries = Retries(NOW, asyncio.Event())
    retries.take(NOW + 60 * SECOND, 10)
    waiting = Retry(RunKey(uuid4(), NOW), NOW + SECOND)
    retries.put(waiting)
    retries.anchor(NOW)
    assert retries.take(NOW, 10) == []
    assert retries.take(NOW + 2 * SECOND, 10) == [waiting]
