"""Signing secrets as tenants see them: `whsec_` followed by base64.

Invariant: all code that writes, signs with or verifies by a secret uses this module.
"""

from base64 import b64decode, b64encode
from typing import Final

from wheelsched.errors import InvalidSecret

PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24
MAX_BYTES: Final = 64  # the block size of SHA-256; longer keys would be hashed first


def write_secret(key: bytes) -> str:
    """The key as text."""
    return PREFIX + b64encode(key).decode()


def read_secret(secret: str) -> bytes:
    """The key of a secret, or `InvalidSecret`."""
    encoded = secret.removeprefix(PREFIX).rstrip("=")  # some tools omit the padding
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError as error:  # invalid base64, or not ASCII
        raise InvalidSecret from error
    if not secret.startswith(PREFIX) or not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise InvalidSecret
    return key
