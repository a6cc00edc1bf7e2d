"""Errors of the core: state transitions, attempts, leases and fencing tokens."""

from wheelsched.errors.base import WheelschedError


class IllegalMove(WheelschedError):
    """the state machine has no transition for this event"""

    def __init__(
        self, message: str | None = None, *, state: str | None = None, event: str = ""
    ) -> None:
        super().__init__(message)
        self.state = state
        self.event = event


class InvalidAttempt(WheelschedError, ValueError):
    """attempt numbers start at 1"""


class InvalidLeaseTerms(WheelschedError, ValueError):
    """the lease margin must be positive and shorter than the lease TTL"""


class TokenOutOfRange(WheelschedError, ValueError):
    """a fencing token must be a non-negative bigint"""


class EpochOutOfRange(WheelschedError, ValueError):
    """an epoch must be at least 1 and fit in 31 bits"""


class TokenCounterExhausted(WheelschedError):
    """the epoch has no fencing tokens left; the partition needs a new epoch"""


class InboxFull(WheelschedError):
    """the inbox between two stages overflowed"""
