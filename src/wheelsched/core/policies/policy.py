"""The policies of a job as values: how to treat lateness, overlap and failure.

Invariant: a policy is only data. `misfire`, `overlap` and `retry` make the decisions, and
`policy_json` checks the user's input.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from wheelsched.values.duration import HOUR, MINUTE, SECOND

DEFAULT_TIMEOUT_US: Final = 2 * MINUTE


class OnMisfire(StrEnum):
    """What to do with due times that are past their grace and within the window."""

    ONCE = "once"  # fire the latest
    ALL = "all"  # fire the latest `max_missed`, oldest first
    SKIP = "skip"  # fire none


class MisfirePolicy(Struct, frozen=True, kw_only=True, gc=False):
    policy: OnMisfire = OnMisfire.ONCE
    grace_us: int = 60 * SECOND
    window_us: int = HOUR
    max_missed: int = 100


class OnOverlap(StrEnum):
    """What to do with a run whose job has earlier unfinished runs."""

    SKIP = "skip"  # skip it
    QUEUE = "queue"  # let it wait
    ALLOW = "allow"  # start it beside them
    CANCEL = "cancel"  # cancel the oldest and start it


UNLIMITED_CONCURRENCY: Final = 1_000


class OverlapPolicy(Struct, frozen=True, kw_only=True, gc=False):
    policy: OnOverlap = OnOverlap.SKIP
    max_concurrent: int | None = None  # None: the default of the policy, see `limit`

    @property
    def limit(self) -> int:
        """How many live runs a job may have before the policy decides."""
        if self.policy is OnOverlap.SKIP:
            return 1  # the guarantee of `skip`, whatever `max_concurrent` says
        if self.max_concurrent is not None:
            return self.max_concurrent
        return UNLIMITED_CONCURRENCY if self.policy is OnOverlap.ALLOW else 1


class Backoff(StrEnum):
    """How the longest wait grows with each failed attempt."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


class RetryPolicy(Struct, frozen=True, kw_only=True, gc=False):
    max_attempts: int = 4  # including the first
    backoff: Backoff = Backoff.EXPONENTIAL
    initial_us: int = SECOND
    max_us: int = 5 * MINUTE
