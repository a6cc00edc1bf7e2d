"""Signatures of callbacks: Standard Webhooks, HMAC-SHA256.

Invariant: `v1,<base64>` for each secret, newest first, over `id.timestamp.body`, byte for byte as
they are sent, or over what headers say in the place of the body. The timestamp is a second of the
database's clock, as every time that leaves here.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelsched.errors import InvalidSecret

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what a secret begins with
BLOCK_BYTES: Final = 64  # of SHA-256
MIN_SECRET_BYTES: Final = 24
MAX_SECRET_BYTES: Final = BLOCK_BYTES  # so that every key is used as it is

if TYPE_CHECKING:
    from hashlib import _Hash


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of a signature's header: a receiver needs to know one of the secrets."""
    head = b"%b.%d." % (message_id.encode(), timestamp)
    return " ".join([_signature(secret, head, body) for secret in secrets])


def _signature(secret: str, head: bytes, body: bytes) -> str:
    keyed = _keyed(secret)
    inner = keyed.inner.copy()
    inner.update(head)
    inner.update(body)
    outer = keyed.outer.copy()
    outer.update(inner.digest())
    return "v1," + b64encode(outer.digest()).decode()


class _Keyed(NamedTuple):
    """HMAC (RFC 2104) with its key taken in: copies go on from here.

    Two bare digests are half as dear to copy as the object of `hmac`.
    """

    inner: "_Hash"
    outer: "_Hash"


# Setting the key up takes longer than signing a callback with it.
@lru_cache(maxsize=4_096)
def _keyed(secret: str) -> _Keyed:
    key = read_secret(secret).ljust(BLOCK_BYTES, b"\0")
    return _Keyed(
        inner=sha256(bytes(byte ^ 0x36 for byte in key)),
        outer=sha256(bytes(byte ^ 0x5C for byte in key)),
    )


def read_secret(secret: str) -> bytes:
    """The key that a secret spells, or `InvalidSecret`."""
    if not secret.startswith(SECRET_PREFIX):
        raise InvalidSecret
    encoded = secret.removeprefix(SECRET_PREFIX)
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except Base64Error as error:
        raise InvalidSecret from error
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise InvalidSecret
    return key
