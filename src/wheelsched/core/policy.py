"""The policies of a job, as values: what to do about lateness, overlap and failure.

Invariant: a policy says what is wanted and holds no decision. The decisions are in `misfire`,
`overlap` and `retry`; what a user may write, and its bounds, in `written`.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from wheelsched.core.duration import HOUR, MINUTE, SECOND

DEFAULT_TIMEOUT_US: Final = 2 * MINUTE


class OnMisfire(StrEnum):
    """What becomes of the due times that are past their grace and within the window."""

    ONCE = "once"  # fire the latest
    ALL = "all"  # fire the latest `max_missed`, oldest first
    SKIP = "skip"  # fire none


class MisfirePolicy(Struct, frozen=True, kw_only=True, gc=False):
    policy: OnMisfire = OnMisfire.ONCE
    grace_us: int = 60 * SECOND
    window_us: int = HOUR
    max_missed: int = 100


class OnOverlap(StrEnum):
    """What becomes of a run that finds earlier runs of its job unfinished."""

    SKIP = "skip"  # it is skipped
    QUEUE = "queue"  # it waits
    ALLOW = "allow"  # it starts beside them
    CANCEL = "cancel"  # the oldest is cancelled and it starts


UNLIMITED_CONCURRENCY: Final = 1_000


class OverlapPolicy(Struct, frozen=True, kw_only=True, gc=False):
    policy: OnOverlap = OnOverlap.SKIP
    max_concurrent: int | None = None  # None: what the policy means by itself, see `limit`

    @property
    def limit(self) -> int:
        """How many live runs a job may have before the policy decides."""
        if self.policy is OnOverlap.SKIP:
            return 1  # the promise of `skip`, whatever else is written
        if self.max_concurrent is not None:
            return self.max_concurrent
        return UNLIMITED_CONCURRENCY if self.policy is OnOverlap.ALLOW else 1


class Backoff(StrEnum):
    """How the longest wait grows with each failed attempt."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


class RetryPolicy(Struct, frozen=True, kw_only=True, gc=False):
    max_attempts: int = 4  # with the first
    backoff: Backoff = Backoff.EXPONENTIAL
    initial_us: int = SECOND
    max_us: int = 5 * MINUTE
