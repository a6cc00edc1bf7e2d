"""Settlement: what an outcome does to its run and to its job.

Invariant: a run makes at most `max_attempts` attempts for each time that it is asked for, and
every outcome is one event of the run's state machine.
"""

from random import Random
from typing import assert_never

from msgspec import Struct

from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.core.policy import RetryPolicy
from wheelsched.core.retry import wait_us
from wheelsched.core.state import JobEvent, RunEvent
from wheelsched.errors import InvalidAttempt


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """What settle writes, in one batch with others."""

    event: RunEvent
    retry_at_us: int | None = None


_SUCCEEDED = Settlement(event=RunEvent.SUCCEED)  # nearly all of them, in one object


def decide(
    policy: RetryPolicy, outcome: Outcome, *, attempt: int, now_us: int, random: Random
) -> Settlement:
    """Decide about attempt number `attempt`, by `Run.attempt_in_hand`, that came back `now_us`."""
    if attempt < 1:
        raise InvalidAttempt
    match outcome:
        case Succeeded():
            return _SUCCEEDED
        case Accepted():
            return Settlement(event=RunEvent.ACCEPT)
        case Failed() if attempt < policy.max_attempts:
            wait = wait_us(policy, attempt, random, retry_after_us=outcome.retry_after_us)
            return Settlement(event=RunEvent.FAIL, retry_at_us=now_us + wait)
        case Failed() | Rejected() | Gone():
            return Settlement(event=RunEvent.DIE)
        case never:
            assert_never(never)


def job_event(outcome: Outcome) -> JobEvent | None:
    """What an outcome does to the job of its run, if anything."""
    return JobEvent.GONE if isinstance(outcome, Gone) else None
