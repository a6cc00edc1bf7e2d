"""What a handler says of its run by raising it."""

from wheelsched.errors.base import WheelschedError


class Verdict(WheelschedError):
    """a handler ended its attempt"""


class Reject(Verdict):
    """the worker will never do this run"""


class RetryLater(Verdict):
    """the worker asks for another attempt later"""

    def __init__(self, after_s: float = 1, message: str | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Gone(Verdict):
    """the worker wants no more runs of this job"""
