"""What the core finds impossible: a move, an attempt, a lease, a token."""

from wheelsched.errors.base import WheelschedError


class IllegalMove(WheelschedError):
    """an event came to a state that it cannot move"""

    def __init__(
        self, message: str | None = None, *, state: str | None = None, event: str = ""
    ) -> None:
        super().__init__(message)
        self.state = state
        self.event = event


class InvalidAttempt(WheelschedError, ValueError):
    """attempts are counted from 1: an outcome belongs to one that was made"""


class InvalidLeaseTerms(WheelschedError, ValueError):
    """the margin of a lease must be longer than nothing and shorter than its TTL"""


class TokenOutOfRange(WheelschedError, ValueError):
    """a fencing token is a bigint that is not negative"""


class EpochOutOfRange(WheelschedError, ValueError):
    """an epoch counts from 1 and fits 31 bits"""


class TokenCounterExhausted(WheelschedError):
    """this epoch has no tokens left: the partition needs a new one"""
