"""Retry: how long a failed run waits for its next attempt.

Invariant: a wait is never negative, never longer than the policy's maximum, and within that never
shorter than the worker asked for.

Full jitter: the wait is drawn evenly from nothing up to the backoff, so that runs that failed
together come back apart. A worker's `Retry-After` is a floor, and the runs that were all told the
same are spread over one `initial` after it.
"""

from random import Random
from typing import assert_never

from wheelsched.core.policy import Backoff, RetryPolicy


def backoff_us(policy: RetryPolicy, attempt: int) -> int:
    """The longest wait after the failure of attempt number `attempt`, the first being 1."""
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
    """How long to wait after the failure of attempt number `attempt`."""
    if retry_after_us is None:
        return random.randint(0, backoff_us(policy, attempt))
    return min(retry_after_us + random.randint(0, policy.initial_us), policy.max_us)
