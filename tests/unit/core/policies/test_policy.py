import msgspec
import pytest
from msgspec import Struct

from wheelsched.core.policies.policy import (
    UNLIMITED_CONCURRENCY,
    Backoff,
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)


@pytest.mark.parametrize("choice", [OnOverlap.QUEUE, OnOverlap.CANCEL])
def test_without_max_concurrent_the_limit_is_one(choice: OnOverlap) -> None:
    assert OverlapPolicy(policy=choice).limit == 1
    assert OverlapPolicy(policy=choice, max_concurrent=5).limit == 5


def test_allow_by_itself_has_no_limit_to_speak_of() -> None:
    assert OverlapPolicy(policy=OnOverlap.ALLOW).limit == UNLIMITED_CONCURRENCY
    assert OverlapPolicy(policy=OnOverlap.ALLOW, max_concurrent=5).limit == 5


def test_skip_has_a_limit_of_one_whatever_is_written() -> None:
    assert OverlapPolicy().limit == 1
    assert OverlapPolicy(policy=OnOverlap.SKIP, max_concurrent=5).limit == 1


@pytest.mark.parametrize(
    "policy",
    [
        MisfirePolicy(policy=OnMisfire.ALL, grace_us=1, window_us=2, max_missed=3),
        OverlapPolicy(policy=OnOverlap.QUEUE, max_concurrent=2),
        RetryPolicy(max_attempts=1, backoff=Backoff.LINEAR, initial_us=2, max_us=3),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_a_policy_survives_the_journey_through_json(policy: Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy), type=type(policy)) == policy
