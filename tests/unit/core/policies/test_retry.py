from random import Random

import pytest

from wheelsched.core.policies.policy import Backoff, RetryPolicy
from wheelsched.core.policies.retry import backoff_us, wait_us
from wheelsched.values.duration import HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        (Backoff.EXPONENTIAL, [1, 2, 4, 8, 16, 30, 30]),
        (Backoff.LINEAR, [1, 2, 3, 4, 5, 6, 7]),
        (Backoff.FIXED, [1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_the_backoff_grows_up_to_its_maximum(backoff: Backoff, seconds: list[int]) -> None:
    policy = RetryPolicy(backoff=backoff, initial_us=SECOND, max_us=30 * SECOND)
    waits = [backoff_us(policy, attempt) for attempt in range(1, 8)]
    assert waits == [wait * SECOND for wait in seconds]


def test_the_backoff_of_a_late_attempt_does_not_overflow() -> None:
    assert backoff_us(RetryPolicy(), 100) == 5 * MINUTE


def test_the_same_random_source_gives_the_same_wait() -> None:
    assert wait_us(RetryPolicy(), 3, Random(7)) == wait_us(RetryPolicy(), 3, Random(7))


def test_full_jitter_draws_from_zero_to_the_whole_backoff() -> None:
    random = Random(7)
    policy = RetryPolicy(initial_us=3)
    assert {wait_us(policy, 1, random) for _ in range(200)} == {0, 1, 2, 3}


def test_retry_after_is_waited_for_and_then_spread() -> None:
    random = Random(7)
    policy = RetryPolicy(initial_us=3)
    waits = {wait_us(policy, 1, random, retry_after_us=MINUTE) for _ in range(200)}
    assert waits == {MINUTE, MINUTE + 1, MINUTE + 2, MINUTE + 3}


@pytest.mark.parametrize("initial_us", [0, SECOND, 5 * MINUTE])
def test_retry_after_is_clamped_to_the_maximum_of_the_policy(initial_us: int) -> None:
    policy = RetryPolicy(initial_us=initial_us, max_us=5 * MINUTE)
    assert wait_us(policy, 1, Random(7), retry_after_us=HOUR) == 5 * MINUTE
    assert wait_us(policy, 1, Random(7), retry_after_us=5 * MINUTE) == 5 * MINUTE
