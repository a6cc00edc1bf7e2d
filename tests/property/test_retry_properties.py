from random import Random

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.outcome import (
    Accepted,
    Failed,
    Gone,
    Rejected,
    Succeeded,
    TransportFailure,
    classify,
    parse_retry_after,
)
from wheelsched.core.policies.policy import Backoff, RetryPolicy
from wheelsched.core.policies.retry import backoff_us, wait_us
from wheelsched.core.policies.settlement import decide
from wheelsched.core.state import RunEvent
from wheelsched.values.duration import DAY

NOW_US = 1_794_816_000_000_000

policies = st.builds(
    lambda backoff, initial, more, attempts: RetryPolicy(
        backoff=backoff, initial_us=initial, max_us=initial + more, max_attempts=attempts
    ),
    st.sampled_from(Backoff),
    st.integers(0, DAY),
    st.integers(0, DAY),
    st.integers(1, 100),
)


@given(policies, st.integers(1, 100))
def test_the_backoff_never_shrinks_and_never_exceeds_its_maximum(
    policy: RetryPolicy, attempt: int
) -> None:
    assert backoff_us(policy, attempt) <= backoff_us(policy, attempt + 1) <= policy.max_us


@given(policies, st.integers(1, 100), st.none() | st.integers(0, 10 * DAY), st.integers())
def test_a_wait_keeps_its_bounds(
    policy: RetryPolicy, attempt: int, retry_after_us: int | None, seed: int
) -> None:
    wait = wait_us(policy, attempt, Random(seed), retry_after_us=retry_after_us)
    floor = 0 if retry_after_us is None else min(retry_after_us, policy.max_us)
    assert floor <= wait <= policy.max_us


@given(policies, st.integers())
def test_a_run_that_always_fails_makes_max_attempts_and_dies(
    policy: RetryPolicy, seed: int
) -> None:
    random = Random(seed)
    attempt = 1
    failed = Failed(error="no connection")
    while (
        decide(policy, failed, attempt=attempt, now_us=NOW_US, random=random).event is RunEvent.FAIL
    ):
        attempt += 1
    assert attempt == policy.max_attempts


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,5} [A-Z][a-z]{2} [0-9]{1,6} .{0,20}"))
def test_any_retry_after_is_a_wait_or_nothing(value: str) -> None:
    wait = parse_retry_after(value, NOW_US)
    assert wait is None or wait >= 0


@given(st.integers() | st.sampled_from(TransportFailure), st.none() | st.text(), st.text())
def test_any_answer_is_an_outcome(
    answer: int | TransportFailure, retry_after: str | None, detail: str
) -> None:
    outcome = classify(answer, now_us=NOW_US, retry_after=retry_after, detail=detail)
    assert isinstance(outcome, Succeeded | Accepted | Failed | Rejected | Gone)
