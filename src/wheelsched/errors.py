"""Every exception of wheelsched. The docstring is the default message."""


class WheelschedError(Exception):
    """wheelsched could not do what was asked"""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class WheelError(WheelschedError):
    """the timing wheel could not do what was asked"""


class DeadlineOutOfRange(WheelError, ValueError):
    """a deadline must lie between 0 and the wheel's max_deadline_ns"""


class ForeignHandle(WheelError, ValueError):
    """this handle was never issued by this wheel"""


class WheelBusy(WheelError, RuntimeError):
    """the wheel is in the middle of another operation: it was entered again, or by two threads"""


class WheelClosed(WheelError, RuntimeError):
    """the wheel is closed"""


# What a user wrote and the core refuses.


class InvalidField(WheelschedError, ValueError):
    """a field does not hold what it should"""

    def __init__(self, message: str | None = None, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer  # RFC 6901, into the document that was written


class InvalidDuration(InvalidField):
    """a duration is written as whole numbers with units, such as '90s' or '1h30m'"""


class InvalidRunId(WheelschedError, ValueError):
    """a run id is the job id in 32 hex digits, '-', and the due time in microseconds"""
