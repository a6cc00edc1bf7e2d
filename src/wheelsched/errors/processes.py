"""Errors of processes that fail to start."""

from wheelsched.errors.base import WheelschedError


class ProcessError(WheelschedError):
    """the process failed"""


class AddressTaken(ProcessError):
    """the address is already in use, or does not belong to this machine"""


class ProcessFailed(ProcessError):
    """the process exited before it was ready; see its log"""


class ProcessSlow(ProcessError):
    """the process was not ready in time; see its log"""
