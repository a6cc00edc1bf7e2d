"""Verifies the signatures of callbacks.

Invariant: nothing in a request is trusted, and its body is not decoded, before its signature is
verified. The comparison takes constant time, so it reveals nothing about the expected signature.

The signature follows Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`. A request with one
run has a second signature over its wheelsched headers. Without it, an attacker could replay an
intercepted request for another job, or with a token that blocks later attempts. During a rotation a
request carries one signature for each secret, and a worker may have several secrets; one match is
enough. An unchanged request that is replayed within the tolerance is valid: deduplication stops it,
because its key is signed.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wheelsched.errors import (
    InvalidSecret,
    SignatureExpired,
    SignatureMismatch,
    SignatureMissing,
)
from wheelsched.values.duration import SECOND
from wheelsched.wire.callback import (
    RUN_ID,
    SIGNATURE,
    SIGNED,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)
from wheelsched.wire.secret import read_secret

VERSION: Final = "v1,"

_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")


def sign(key: bytes, signed: bytes) -> str:
    """Sign a message with the key of a secret."""
    return VERSION + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class Verifier:
    """Verifies requests against the secrets of a tenant."""

    def __init__(
        self, secrets: Sequence[str], *, tolerance_us: int, wall_us: Callable[[], int]
    ) -> None:
        if not secrets:
            raise InvalidSecret(
                "no secret given; pass at least one secret of the tenant, 'whsec_…'"
            )
        self._keys = [read_secret(secret) for secret in secrets]
        self._tolerance_us = tolerance_us
        self._wall_us = wall_us

    def verify(self, headers: Mapping[str, str], body: bytes) -> str:
        """Return the signed id, or raise `UnverifiedCallback`. Header names must be lower case."""
        webhook_id = headers.get(WEBHOOK_ID, "")
        timestamp = headers.get(WEBHOOK_TIMESTAMP, "")
        signatures = headers.get(WEBHOOK_SIGNATURE, "")
        if not webhook_id or not signatures or not _TIMESTAMP.fullmatch(timestamp):
            raise SignatureMissing
        head = f"{webhook_id}.{timestamp}."
        if not self._is_signed(head.encode("utf-8", "replace") + body, signatures):
            raise SignatureMismatch
        if RUN_ID in headers:
            self._verify_values(head, headers)
        if abs(int(timestamp) * SECOND - self._wall_us()) > self._tolerance_us:
            raise SignatureExpired
        return webhook_id

    def _verify_values(self, head: str, headers: Mapping[str, str]) -> None:
        signatures = headers.get(SIGNATURE, "")
        if not signatures:
            raise SignatureMissing(f"missing header {SIGNATURE}")
        values = "\n".join(headers.get(name, "") for name in SIGNED)
        if not self._is_signed((head + values).encode("utf-8", "replace"), signatures):
            raise SignatureMismatch(
                f"{SIGNATURE} does not match the other wheelsched headers of the request"
            )

    def _is_signed(self, signed: bytes, signatures: str) -> bool:
        given = signatures.encode("utf-8", "replace").split(b" ")
        matches = False
        for key in self._keys:
            expected = sign(key, signed).encode()
            for signature in given:
                matches |= hmac.compare_digest(signature, expected)
        return matches
