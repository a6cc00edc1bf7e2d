"""What a dispatcher cannot do."""

from wheelsched.errors.base import WheelschedError


class InvalidNetwork(WheelschedError, ValueError):
    """a network is written in CIDR notation, such as 10.20.0.0/16"""


class InvalidSecret(WheelschedError, ValueError):
    """a secret is whsec_ and 24 to 64 bytes in base64"""


class AddressForbidden(WheelschedError, OSError):
    """callbacks may not go to this address"""
