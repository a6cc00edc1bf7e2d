"""Errors of the delivery of callbacks."""

from wheelsched.errors.base import WheelschedError


class InvalidNetwork(WheelschedError, ValueError):
    """invalid network; expected CIDR notation, e.g. 10.20.0.0/16"""


class InvalidSecret(WheelschedError, ValueError):
    """invalid secret; expected whsec_ followed by 24 to 64 bytes in base64"""


class AddressForbidden(WheelschedError, OSError):
    """callbacks to this address are not allowed"""
