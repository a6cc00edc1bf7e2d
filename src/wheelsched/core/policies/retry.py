"""The retry policy: how long a failed run waits for its next attempt.

Invariant: a wait is never negative and never longer than the policy's maximum. Within that, it is
never shorter than the worker asked for.

The wait has full jitter: it is drawn uniformly from zero to the backoff, so that runs that failed
together are not retried together. A worker's `Retry-After` is a minimum. To spread runs with the
same `Retry-After`, each waits for a random part of `initial` in addition.
"""

from random import Random
from typing import assert_never

from wheelsched.core.policies.policy import Backoff, RetryPolicy


def backoff_us(policy: RetryPolicy, attempt: int) -> int:
    """The longest wait after attempt number `attempt` failed. The first attempt is 1."""
    match policy.backoff:
        case Backoff.EXPONENTIAL:
            backoff_us = policy.initial_us << (attempt - 1)
        case Backoff.LINEAR:
            backoff_us = policy.initial_us * attempt
        case Backoff.FIXED:
            backoff_us = policy.initial_us
        case never:
            assert_never(never)
    return min(backoff_us, policy.max_us)


def wait_us(
    policy: RetryPolicy, attempt: int, random: Random, *, retry_after_us: int | None = None
) -> int:
    """How long to wait after attempt number `attempt` failed."""
    if retry_after_us is None:
        return random.randint(0, backoff_us(policy, attempt))
    return min(retry_after_us + random.randint(0, policy.initial_us), policy.max_us)
