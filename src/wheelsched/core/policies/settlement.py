"""Decides what an outcome does to its run and to its job.

Invariant: a run makes at most `max_attempts` attempts, counted anew after each manual retry, and at
most `MOST_TOO_EARLY` more that its worker did not start. Every outcome is one event of the run's
state machine.

A worker responds 425 if it has seen a later attempt of the run. The sender may still own the run:
the database may have gone back to an older state, and forgotten the later attempt. So a 425 does
not end a run. The next attempt has a greater token.
"""

from random import Random
from typing import Final, assert_never

from msgspec import Struct

from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.policies.retry import wait_us
from wheelsched.core.state import JobEvent, RunEvent
from wheelsched.errors import InvalidAttempt

MOST_TOO_EARLY: Final = 10  # a worker that always responds 425 does not keep a run for ever


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """The event of an outcome, and the time of the next attempt, if any."""

    event: RunEvent
    retry_at_us: int | None = None


_SUCCEEDED = Settlement(event=RunEvent.SUCCEED)  # shared, because nearly all runs succeed


def decide(
    policy: RetryPolicy, outcome: Outcome, *, attempt: int, now_us: int, random: Random
) -> Settlement:
    """Decide about the outcome of attempt number `attempt` (`Run.attempt_in_hand`)."""
    if attempt < 1:
        raise InvalidAttempt
    match outcome:
        case Succeeded():
            return _SUCCEEDED
        case Accepted():
            return Settlement(event=RunEvent.ACCEPT)
        case Failed() if attempt < _most_attempts(policy, outcome):
            wait = wait_us(policy, attempt, random, retry_after_us=outcome.retry_after_us)
            return Settlement(event=RunEvent.FAIL, retry_at_us=now_us + wait)
        case Failed() | Rejected() | Gone():
            return Settlement(event=RunEvent.DIE)
        case never:
            assert_never(never)


def job_event(outcome: Outcome) -> JobEvent | None:
    """The event that an outcome causes for its job, if any."""
    return JobEvent.GONE if isinstance(outcome, Gone) else None


def _most_attempts(policy: RetryPolicy, outcome: Failed) -> int:
    return policy.max_attempts + (MOST_TOO_EARLY if outcome.is_too_early else 0)
