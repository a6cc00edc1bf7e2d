"""The secrets that callbacks are signed with, as their tenants see them: `whsec_` and base64.

Invariant: whoever writes, signs with or verifies by a secret does it by this file.
"""

from base64 import b64decode, b64encode
from typing import Final

from wheelsched.errors import InvalidSecret

PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24
MAX_BYTES: Final = 64  # a block of SHA-256: every key is used as it is


def write_secret(key: bytes) -> str:
    """A key as text."""
    return PREFIX + b64encode(key).decode()


def read_secret(secret: str) -> bytes:
    """The key that a secret spells, or `InvalidSecret`."""
    encoded = secret.removeprefix(PREFIX).rstrip("=")  # some leave the padding away
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError as error:  # base64 that is none, or no ASCII
        raise InvalidSecret from error
    if not secret.startswith(PREFIX) or not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise InvalidSecret
    return key
