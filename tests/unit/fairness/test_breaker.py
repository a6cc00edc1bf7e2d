"""A breaker opens on failures, probes its target, and closes again."""

import pytest

from wheelsched.config import BreakerConfig
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.fairness.breaker import Breaker, BreakerState, Verdict, verdict_of
from wheelsched.values.duration import SECOND

CONFIG = BreakerConfig(failures=3, open_initial_ms=1_000, open_max_ms=5_000)


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(CONFIG)


def fail(breaker: Breaker, now_us: int) -> None:
    request = object()
    breaker.sent(request, now_us)
    breaker.ended(request, now_us, failed=True)


def open_it(breaker: Breaker, now_us: int = 0) -> None:
    for _ in range(CONFIG.failures):
        fail(breaker, now_us)
    assert breaker.state is BreakerState.OPEN


def half_open_it(breaker: Breaker) -> None:
    open_it(breaker)
    breaker.half_open(breaker.open_until_us)


def test_begins_closed_and_fresh(breaker: Breaker) -> None:
    assert breaker.state is BreakerState.CLOSED
    assert breaker.may_send
    assert breaker.is_fresh


def test_stays_closed_below_the_failure_threshold(breaker: Breaker) -> None:
    fail(breaker, 0)
    fail(breaker, 0)
    assert breaker.state is BreakerState.CLOSED
    assert breaker.may_send
    assert not breaker.is_fresh


def test_opens_after_consecutive_failures(breaker: Breaker) -> None:
    open_it(breaker, 7)
    assert not breaker.may_send
    assert breaker.open_until_us == 7 + SECOND


def test_a_success_resets_the_count(breaker: Breaker) -> None:
    fail(breaker, 0)
    fail(breaker, 0)
    breaker.ended(object(), 0, failed=False)
    assert breaker.is_fresh
    fail(breaker, 0)
    fail(breaker, 0)
    assert breaker.state is BreakerState.CLOSED


def test_an_unsent_request_does_not_count(breaker: Breaker) -> None:
    fail(breaker, 0)
    fail(breaker, 0)
    breaker.ended(object(), 0, failed=None)
    assert breaker.may_send
    fail(breaker, 0)
    assert breaker.state is BreakerState.OPEN


def test_does_not_half_open_before_its_wait_is_over(breaker: Breaker) -> None:
    open_it(breaker)
    with pytest.raises(AssertionError):
        breaker.half_open(breaker.open_until_us - 1)


def test_half_open_lets_one_request_through(breaker: Breaker) -> None:
    half_open_it(breaker)
    before = breaker.may_send
    breaker.sent(object(), SECOND)
    assert (before, breaker.may_send) == (True, False)


def test_a_hanging_probe_does_not_delay_the_next_one(breaker: Breaker) -> None:
    half_open_it(breaker)
    hanging, answered = object(), object()
    breaker.sent(hanging, SECOND)
    breaker.half_open(3 * SECOND)
    breaker.sent(answered, 3 * SECOND)
    assert breaker.open_until_us == 7 * SECOND
    breaker.ended(answered, 4 * SECOND, failed=False)
    assert breaker.is_fresh
    breaker.ended(hanging, 60 * SECOND, failed=True)
    assert breaker.state is BreakerState.CLOSED


def test_a_successful_probe_closes_it(breaker: Breaker) -> None:
    half_open_it(breaker)
    probe = object()
    breaker.sent(probe, SECOND)
    breaker.ended(probe, 2 * SECOND, failed=False)
    assert breaker.is_fresh


def test_an_unsent_probe_is_replaced_by_another(breaker: Breaker) -> None:
    half_open_it(breaker)
    probe = object()
    breaker.sent(probe, SECOND)
    breaker.ended(probe, 2 * SECOND, failed=None)
    assert breaker.state is BreakerState.HALF_OPEN
    fail(breaker, 2 * SECOND)
    assert breaker.open_until_us == 4 * SECOND  # as if it had been the first


def test_the_wait_doubles_up_to_its_maximum(breaker: Breaker) -> None:
    open_it(breaker)
    waits = []
    for _ in range(4):
        now_us = breaker.open_until_us
        breaker.half_open(now_us)
        fail(breaker, now_us)
        waits.append(breaker.open_until_us - now_us)
    assert waits == [2 * SECOND, 4 * SECOND, 5 * SECOND, 5 * SECOND]


def test_a_success_resets_the_wait(breaker: Breaker) -> None:
    half_open_it(breaker)
    fail(breaker, SECOND)
    breaker.half_open(breaker.open_until_us)
    probe = object()
    breaker.sent(probe, 5 * SECOND)
    breaker.ended(probe, 5 * SECOND, failed=False)
    open_it(breaker, 10 * SECOND)
    assert breaker.open_until_us == 11 * SECOND


@pytest.mark.parametrize("failed", [True, False])
def test_a_request_sent_before_it_opened_does_not_count(breaker: Breaker, failed: bool) -> None:
    old = object()
    breaker.sent(old, 0)
    half_open_it(breaker)
    until_us = breaker.open_until_us
    breaker.ended(old, 2 * SECOND, failed=failed)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.open_until_us == until_us


def test_repeated_failures_of_one_job_count_once(breaker: Breaker) -> None:
    for _ in range(10):
        breaker.ended(object(), 0, failed=True, once="hangs")
    assert breaker.may_send
    breaker.ended(object(), 0, failed=True, once="hangs too")
    breaker.ended(object(), 0, failed=True)
    assert breaker.state is BreakerState.OPEN


def test_records_when_and_why_it_opened(breaker: Breaker) -> None:
    open_it(breaker, 7)
    breaker.half_open(breaker.open_until_us)
    request = object()
    breaker.sent(request, 2 * SECOND)
    breaker.ended(request, 2 * SECOND, failed=True, error="refused")
    assert (breaker.opened_us, breaker.error) == (7, "refused")


@pytest.mark.parametrize(
    ("outcome", "has_begun", "verdict"),
    [
        (Succeeded(http_status=204), True, Verdict.ANSWERED),
        (Accepted(), True, Verdict.ANSWERED),
        (Gone(error="moved"), True, Verdict.ANSWERED),
        (Rejected(error="no such thing", http_status=404), True, Verdict.ANSWERED),
        (Rejected(error="the address is not allowed"), False, None),
        (Failed(error="one run of a batch", http_status=200), True, Verdict.ANSWERED),
        (Failed(error="overtaken", http_status=425), True, Verdict.OVERTAKEN),
        (Failed(error="slow down", http_status=429, retry_after_us=1), True, Verdict.FAILED),
        (Failed(error="boom", http_status=500), True, Verdict.FAILED),
        (Failed(error="full", http_status=503, retry_after_us=1), True, Verdict.FAILED),
        (Failed(error="timeout"), True, Verdict.SILENT),
        (Failed(error="no connection"), False, Verdict.UNREACHED),
    ],
)
def test_the_verdict_of_an_outcome(
    outcome: Outcome, has_begun: bool, verdict: Verdict | None
) -> None:
    assert verdict_of([outcome], has_begun=has_begun) is verdict


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (Succeeded(http_status=200), Verdict.ANSWERED),
        (Failed(error="one run of a batch", http_status=200), Verdict.ANSWERED),
        (Failed(error="overtaken", http_status=425), Verdict.OVERTAKEN),
    ],
)
def test_an_overtaken_run_does_not_decide_for_its_batch(other: Outcome, verdict: Verdict) -> None:
    overtaken = Failed(error="overtaken", http_status=425)
    assert verdict_of([overtaken, other, overtaken], has_begun=True) is verdict


def test_connections_count_for_the_origin_and_responses_for_the_job() -> None:
    found = {verdict: (verdict.has_origin_failed, verdict.has_job_failed) for verdict in Verdict}
    assert found == {
        Verdict.ANSWERED: (False, False),
        Verdict.FAILED: (False, True),
        Verdict.OVERTAKEN: (False, None),
        Verdict.SILENT: (True, True),
        Verdict.UNREACHED: (True, None),
    }


def test_states_are_named_as_in_the_metrics() -> None:
    assert [state.value for state in BreakerState] == ["closed", "open", "half_open"]
