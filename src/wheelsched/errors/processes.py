"""What a process cannot do."""

from wheelsched.errors.base import WheelschedError


class ProcessError(WheelschedError):
    """a process could not do its part"""


class AddressTaken(ProcessError):
    """the address to listen on is taken, or not this machine's"""


class ProcessFailed(ProcessError):
    """a process ended before it was ready; its log says why"""


class ProcessSlow(ProcessError):
    """a process was not ready in time; its log says why"""
