from random import Random

import pytest

from wheelsched.core.model import DRAFT_STATES, JobState, RunState
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.policies.settlement import MOST_TOO_EARLY, Settlement, decide, job_event
from wheelsched.core.state import JobEvent, RunEvent, move_job, move_run
from wheelsched.errors import InvalidAttempt
from wheelsched.values.duration import MINUTE

NOW_US = 1_794_816_000_000_000
FAILED = Failed(error="503", http_status=503)


def settled(outcome: Outcome, attempt: int = 1, max_attempts: int = 4) -> Settlement:
    policy = RetryPolicy(max_attempts=max_attempts)
    return decide(policy, outcome, attempt=attempt, now_us=NOW_US, random=Random(7))


def test_success_ends_the_run() -> None:
    assert settled(Succeeded(http_status=200)) == Settlement(event=RunEvent.SUCCEED)


def test_acceptance_keeps_it_running() -> None:
    assert settled(Accepted()) == Settlement(event=RunEvent.ACCEPT)


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_failure_is_retried_while_attempts_are_left(attempt: int) -> None:
    settlement = settled(FAILED, attempt)
    assert settlement.event is RunEvent.FAIL
    assert settlement.retry_at_us is not None
    assert NOW_US <= settlement.retry_at_us <= NOW_US + 5 * MINUTE


@pytest.mark.parametrize("attempt", [4, 5])
def test_the_last_failure_kills_the_run(attempt: int) -> None:
    assert settled(FAILED, attempt) == Settlement(event=RunEvent.DIE)


def test_with_one_attempt_there_is_no_retry() -> None:
    assert settled(FAILED, max_attempts=1) == Settlement(event=RunEvent.DIE)


@pytest.mark.parametrize("max_attempts", [1, 4])
def test_an_attempt_that_was_not_started_is_not_the_last_one(max_attempts: int) -> None:
    overtaken = Failed(error="overtaken", http_status=425)
    last = max_attempts + MOST_TOO_EARLY
    found = [settled(overtaken, attempt, max_attempts).event for attempt in range(1, last + 1)]
    assert found == [RunEvent.FAIL] * (last - 1) + [RunEvent.DIE]
    assert settled(FAILED, max_attempts + 1, max_attempts).event is RunEvent.DIE


def test_attempts_are_counted_from_one() -> None:
    with pytest.raises(InvalidAttempt):
        settled(FAILED, attempt=0)


def test_retry_after_reaches_the_retry() -> None:
    settlement = settled(Failed(error="429", http_status=429, retry_after_us=2 * MINUTE))
    assert settlement.retry_at_us is not None
    assert settlement.retry_at_us >= NOW_US + 2 * MINUTE


def test_a_rejection_kills_the_run_at_once() -> None:
    assert settled(Rejected(error="404", http_status=404)) == Settlement(event=RunEvent.DIE)


def test_gone_kills_the_run_and_pauses_the_job() -> None:
    gone = Gone(error="410")
    assert settled(gone) == Settlement(event=RunEvent.DIE)
    assert job_event(gone) is JobEvent.GONE


@pytest.mark.parametrize("state", [RunState.ARMED, RunState.RUNNING])
@pytest.mark.parametrize("attempt", [1, 4])
@pytest.mark.parametrize(
    "outcome",
    [Succeeded(), Accepted(), FAILED, Rejected(error="404"), Gone(error="410")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_every_settlement_is_a_legal_move_of_the_run_and_of_any_job(
    state: RunState, attempt: int, outcome: Outcome
) -> None:
    settlement = settled(outcome, attempt)
    moved = move_run(state, settlement.event)
    assert (settlement.retry_at_us is not None) == (moved is RunState.RETRYING)
    if (event := job_event(outcome)) is not None:
        for job_state in set(JobState) - DRAFT_STATES:  # which have no runs
            assert move_job(job_state, event) is not JobState.ACTIVE


@pytest.mark.parametrize("attempt", [1, 4])
@pytest.mark.parametrize(
    "outcome",
    [Succeeded(), FAILED, Rejected(error="404"), Gone(error="410")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_the_late_answer_to_an_attempt_that_timed_out_is_a_legal_move(
    attempt: int, outcome: Outcome
) -> None:
    """The worker reports the outcome by REST while its token is still the latest."""
    move_run(RunState.RETRYING, settled(outcome, attempt).event)
