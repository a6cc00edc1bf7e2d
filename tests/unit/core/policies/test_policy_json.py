from collections.abc import Mapping

import pytest

from wheelsched.core.policies.policy import (
    Backoff,
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.core.policies.policy_json import Policies, read_policies, write_policies
from wheelsched.errors import InvalidDocument
from wheelsched.values.duration import DAY, HOUR, MINUTE, SECOND


def refused(document: Mapping[str, object]) -> dict[str, str]:
    with pytest.raises(InvalidDocument) as caught:
        read_policies(document)
    return {error.pointer: str(error) for error in caught.value.errors}


def test_missing_fields_have_their_documented_defaults() -> None:
    assert read_policies({}) == Policies(
        misfire=MisfirePolicy(
            policy=OnMisfire.ONCE, grace_us=60 * SECOND, window_us=HOUR, max_missed=100
        ),
        overlap=OverlapPolicy(policy=OnOverlap.SKIP),
        retry=RetryPolicy(
            max_attempts=4, backoff=Backoff.EXPONENTIAL, initial_us=SECOND, max_us=5 * MINUTE
        ),
        timeout_us=120 * SECOND,
        priority=0,
    )


def test_the_example_of_the_contract_is_read() -> None:
    document = {
        "name": "weekly-report",
        "schedule": "0 9 * * 1",
        "misfire": {"policy": "all", "grace": "30s", "window": "1d", "max_missed": 7},
        "overlap": {"policy": "queue", "max_concurrent": 2},
        "retry": {"max_attempts": 1, "backoff": "fixed", "initial": "10s", "max": "10s"},
        "timeout": "1h",
        "priority": -5,
    }
    assert read_policies(document) == Policies(
        misfire=MisfirePolicy(
            policy=OnMisfire.ALL, grace_us=30 * SECOND, window_us=DAY, max_missed=7
        ),
        overlap=OverlapPolicy(policy=OnOverlap.QUEUE, max_concurrent=2),
        retry=RetryPolicy(
            max_attempts=1, backoff=Backoff.FIXED, initial_us=10 * SECOND, max_us=10 * SECOND
        ),
        timeout_us=HOUR,
        priority=-5,
    )


@pytest.mark.parametrize(
    ("document", "pointer", "message"),
    [
        ({"misfire": {"policy": "sometimes"}}, "/misfire/policy",
         "'sometimes' is not valid; must be one of: once, all, skip"),
        ({"misfire": {"grace": "-1s"}}, "/misfire/grace",
         "'-1s' is negative; the shortest duration is '0s'"),
        ({"misfire": {"grace": 60}}, "/misfire/grace",
         "60 is not a valid duration; write text, e.g. '90s'"),
        ({"misfire": {"grace": "2d"}}, "/misfire/grace",
         "'2d' is out of range; expected '0s' to '1d'"),
        ({"misfire": {"window": "52w"}}, "/misfire/window",
         "'52w' is out of range; expected '0s' to '4w2d'"),
        ({"misfire": {"grace": "1h", "window": "30m"}}, "/misfire/window",
         "the window '30m' is shorter than the grace '1h'; it must be at least as long"),
        ({"misfire": {"max_missed": 0}}, "/misfire/max_missed",
         "0 is out of range; expected 1 to 1,000"),
        ({"misfire": {"polcy": "all"}}, "/misfire/polcy",
         "unknown field 'polcy'; did you mean 'policy'?"),
        ({"misfire": "once"}, "/misfire", "'once' is not an object"),
        ({"overlap": {"policy": "forbid"}}, "/overlap/policy",
         "'forbid' is not valid; must be one of: skip, queue, allow, cancel"),
        ({"overlap": {"policy": "queue", "max_concurrent": 0}}, "/overlap/max_concurrent",
         "0 is out of range; expected 1 to 1,000"),
        ({"overlap": {"max_concurrent": 2}}, "/overlap/max_concurrent",
         ("the policy 'skip' never runs two at once, so max_concurrent must be 1; "
          "use 'queue' or 'allow' for more")),
        ({"retry": {"max_attempts": 1_000_000}}, "/retry/max_attempts",
         "1000000 is out of range; expected 1 to 100"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts",
         "0 is out of range; expected 1 to 100"),
        ({"retry": {"backoff": "quadratic"}}, "/retry/backoff",
         "'quadratic' is not valid; must be one of: exponential, linear, fixed"),
        ({"retry": {"initial": "0s"}}, "/retry/initial",
         "'0s' is out of range; expected '1ms' to '1d'"),
        ({"retry": {"initial": "10m", "max": "1m"}}, "/retry/max",
         ("the maximum wait '1m' is shorter than the initial wait '10m'; "
          "it must be at least as long")),
        ({"timeout": "0s"}, "/timeout", "'0s' is out of range; expected '10ms' to '1d'"),
        ({"timeout": "1000000000s"}, "/timeout",
         "'1000000000s' is out of range; expected '10ms' to '1d'"),
        ({"timeout": 0}, "/timeout", "0 is not a valid duration; write text, e.g. '90s'"),
        ({"priority": 101}, "/priority", "101 is out of range; expected -100 to 100"),
        ({"priority": "high"}, "/priority", "'high' is not a whole number"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_refused_with_the_expected_value(
    document: Mapping[str, object], pointer: str, message: str
) -> None:
    assert refused(document) == {pointer: message}


def test_every_mistake_is_named_at_once() -> None:
    document = {
        "misfire": {"policy": 1, "window": "x"},
        "overlap": [],
        "retry": {"max": None, "jitter": True},
        "timeout": "forever",
    }
    assert sorted(refused(document)) == [
        "/misfire/policy",
        "/misfire/window",
        "/overlap",
        "/retry/jitter",
        "/timeout",
    ]


def test_a_long_grace_or_initial_wait_raises_the_other_default() -> None:
    policies = read_policies({"misfire": {"grace": "2h"}, "retry": {"initial": "10m"}})
    assert policies.misfire.window_us == 2 * HOUR
    assert policies.retry.max_us == 10 * MINUTE


def test_a_written_concurrency_survives_and_one_that_is_not_stays_open() -> None:
    assert read_policies({"overlap": {"policy": "allow"}}).overlap.max_concurrent is None
    assert read_policies({"overlap": {"policy": "skip", "max_concurrent": 1}}).overlap.limit == 1


def test_policies_are_written_as_a_user_would() -> None:
    assert write_policies(Policies()) == {
        "misfire": {"policy": "once", "grace": "1m", "window": "1h", "max_missed": 100},
        "overlap": {"policy": "skip", "max_concurrent": None},
        "retry": {"max_attempts": 4, "backoff": "exponential", "initial": "1s", "max": "5m"},
        "timeout": "2m",
        "priority": 0,
    }
