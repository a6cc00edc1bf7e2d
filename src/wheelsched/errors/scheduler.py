"""Errors of the scheduler inside an application."""

from wheelsched.errors.base import WheelschedError


class SchedulerError(WheelschedError):
    """the scheduler could not complete the operation"""


class SchedulerNotRunning(SchedulerError, RuntimeError):
    """the scheduler is not running; use `async with scheduler:`"""


class SchedulerRunning(SchedulerError, RuntimeError):
    """the scheduler is running already; register tasks and jobs before it starts"""


class SchedulerNotReady(SchedulerError, TimeoutError):
    """the scheduler did not start in time"""


class InvalidSchedulerOption(SchedulerError, ValueError):
    """an option of the scheduler is invalid"""


class TaskNotFound(SchedulerError, LookupError):
    """this scheduler has no such task"""


class HandlerStuck(SchedulerError, TimeoutError):
    """a handler did not end in time"""
