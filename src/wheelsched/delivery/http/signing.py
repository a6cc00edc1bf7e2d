"""Signs callbacks with HMAC-SHA256, as in Standard Webhooks.

Invariant: a signature is `v1,<base64>` for each secret, newest first, over `id.timestamp.body`
exactly as sent, or over header values in place of the body. The timestamp is a second of the
database's clock.
"""

from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelsched.wire.secret import read_secret

BLOCK_BYTES: Final = 64  # of SHA-256

if TYPE_CHECKING:
    from hashlib import _Hash


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of a signature header. A receiver needs one of the secrets to verify it."""
    head = _head(message_id, timestamp)
    signatures = []
    for secret in secrets:
        keyed = _keyed(secret)
        inner = keyed.inner.copy()
        inner.update(head)
        inner.update(body)
        signatures.append(_signature(keyed, inner))
    return " ".join(signatures)


def sign_both(
    secrets: Sequence[str], message_id: str, timestamp: int, body: bytes, values: bytes
) -> tuple[str, str]:
    """`sign` for a body and for header values. Their common beginning is hashed once."""
    head = _head(message_id, timestamp)
    of_body, of_values = [], []
    for secret in secrets:
        keyed = _keyed(secret)
        inner = keyed.inner.copy()
        inner.update(head)
        inner_of_values = inner.copy()
        inner.update(body)
        inner_of_values.update(values)
        of_body.append(_signature(keyed, inner))
        of_values.append(_signature(keyed, inner_of_values))
    return " ".join(of_body), " ".join(of_values)


def _head(message_id: str, timestamp: int) -> bytes:
    return b"%b.%d." % (message_id.encode(), timestamp)


def _signature(keyed: "_Keyed", inner: "_Hash") -> str:
    outer = keyed.outer.copy()
    outer.update(inner.digest())
    return "v1," + b2a_base64(outer.digest(), newline=False).decode()


class _Keyed(NamedTuple):
    """An HMAC (RFC 2104) that is initialised with its key, to be copied.

    Copying two digests costs half as much as copying an `hmac` object.
    """

    inner: "_Hash"
    outer: "_Hash"


# Initialising the key takes longer than signing a callback.
@lru_cache(maxsize=4_096)
def _keyed(secret: str) -> _Keyed:
    key = read_secret(secret).ljust(BLOCK_BYTES, b"\0")
    return _Keyed(
        inner=sha256(bytes(byte ^ 0x36 for byte in key)),
        outer=sha256(bytes(byte ^ 0x5C for byte in key)),
    )
