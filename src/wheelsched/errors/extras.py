"""Errors of optional dependencies."""

from wheelsched.errors.base import WheelschedError


class MissingExtra(WheelschedError, ImportError):
    """this part of wheelsched requires an extra that is not installed"""
