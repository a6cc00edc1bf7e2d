from uuid import uuid4

from wheelsched.core.duration import SECOND
from wheelsched.core.model import RunKey
from wheelsched.ports import Retry
from wheelsched.shard.retries import Retries

NOW = 1_800_000_000 * SECOND


def test_a_run_waits_until_the_latest_time_that_was_heard_of() -> None:
    retries = Retries(NOW, lambda: None)
    key = RunKey(uuid4(), NOW)
    retries.put(Retry(key, NOW + SECOND))
    retries.put(Retry(key, NOW + 3 * SECOND))
    retries.put(Retry(key, NOW + 3 * SECOND))
    assert len(retries) == 1
    assert retries.take(NOW + 2 * SECOND, 10) == []
    assert retries.take(NOW + 4 * SECOND, 10) == [Retry(key, NOW + 3 * SECOND)]
    assert len(retries) == 0


def test_what_comes_behind_the_furthest_reach_is_given_at_once() -> None:
    retries = Retries(NOW, lambda: None)
    assert retries.take(NOW + 60 * SECOND, 10) == []
    retry = Retry(RunKey(uuid4(), NOW), NOW + 10 * SECOND)
    retries.put(retry)
    assert retries.next_us() == 0
    assert retries.take(NOW + SECOND, 10) == [retry]


def test_some_may_be_discarded_of_many() -> None:
    retries = Retries(NOW, lambda: None)
    keys = [RunKey(uuid4(), NOW) for _ in range(50)]
    for key in keys:
        retries.put(Retry(key, NOW + SECOND))
    assert set(retries) == set(keys)
    for key in keys[:25]:
        retries.discard(key)
    left = keys[25:]
    assert {retry.key for retry in retries.take(NOW + 2 * SECOND, 100)} == set(left)


def test_one_that_is_discarded_never_comes() -> None:
    retries = Retries(NOW, lambda: None)
    key = RunKey(uuid4(), NOW)
    retries.put(Retry(key, NOW))
    retries.discard(key)
    retries.discard(key)
    assert retries.take(NOW + SECOND, 10) == []


def test_they_go_on_after_the_clock_went_back() -> None:
    retries = Retries(NOW, lambda: None)
    retries.take(NOW + 60 * SECOND, 10)
    waiting = Retry(RunKey(uuid4(), NOW), NOW + SECOND)
    retries.put(waiting)
    retries.anchor(NOW)
    assert retries.take(NOW, 10) == []
    assert retries.take(NOW + 2 * SECOND, 10) == [waiting]
