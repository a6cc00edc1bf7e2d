"""Errors of the links between shards and the processes that hand out their runs."""

from wheelsched.errors.base import WheelschedError


class LinkLost(WheelschedError):
    """the link to the shard was lost; outcomes may or may not have been written"""


class InvalidFrame(WheelschedError, ValueError):
    """the peer of a link sent an invalid frame"""


class LinkRefused(WheelschedError):
    """the peer of a link could not prove its identity"""
