"""What the timing wheel refuses."""

from wheelsched.errors.base import WheelschedError


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


class WheelCorrupt(WheelError, AssertionError):
    """an invariant of the wheel does not hold"""


class WrongLoop(WheelError, RuntimeError):
    """an AsyncWheel is used on the loop that made it, while that runs; from another thread, \
pass the call to loop.call_soon_threadsafe"""
