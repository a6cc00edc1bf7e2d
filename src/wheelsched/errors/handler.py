"""Exceptions that a handler raises to end its attempt in a certain way."""

from wheelsched.errors.base import WheelschedError


class HandlerOutcome(WheelschedError):
    """the handler ended its attempt"""


class Reject(HandlerOutcome):
    """the worker rejected the run permanently"""


class RetryLater(HandlerOutcome):
    """the worker asked for a retry"""

    def __init__(self, after_s: float = 1, message: str | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Gone(HandlerOutcome):
    """the worker no longer accepts runs of this job"""
