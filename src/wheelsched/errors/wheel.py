"""Errors of the timing wheel."""

from wheelsched.errors.base import WheelschedError


class WheelError(WheelschedError):
    """the timing wheel could not complete the operation"""


class DeadlineOutOfRange(WheelError, ValueError):
    """a deadline must be between 0 and the wheel's max_deadline_ns"""


class ForeignHandle(WheelError, ValueError):
    """this wheel never issued this handle"""


class WheelBusy(WheelError, RuntimeError):
    """the wheel is not reentrant or thread-safe: another operation is in progress"""


class WheelClosed(WheelError, RuntimeError):
    """the wheel is closed"""


class WheelCorrupt(WheelError, AssertionError):
    """an invariant of the wheel is violated"""


class WrongLoop(WheelError, RuntimeError):
    """an AsyncWheel must be used on the loop that created it, while it runs; from another thread, \
use loop.call_soon_threadsafe"""
