"""Verification: whether a request comes from somebody who knows a secret of ours.

Invariant: nothing of a request is believed, nor its body decoded, before its signature is
verified; and how long that takes says nothing about how much of a signature was right.

The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`. A request of one
run has a second, over what its headers say of the run: without it a request that was overheard
could be sent again in the name of another job, or with a token that shuts later attempts out.
While secrets are rotated a request carries a signature by each, and a worker knows several: one
match is enough. A request that is sent once more within the tolerance, as it was, is genuine:
deduplication is what stops it, by what was signed.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wheelsched.core.duration import SECOND
from wheelsched.errors import (
    InvalidSecret,
    SignatureExpired,
    SignatureMismatch,
    SignatureMissing,
)
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
    """The signature of a message by the key of a secret."""
    return VERSION + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class Verifier:
    """Knows the secrets, and the time of day."""

    def __init__(
        self, secrets: Sequence[str], *, tolerance_us: int, wall_us: Callable[[], int]
    ) -> None:
        if not secrets:
            raise InvalidSecret("a worker needs at least one secret of its tenant, 'whsec_…'")
        self._keys = [read_secret(secret) for secret in secrets]
        self._tolerance_us = tolerance_us
        self._wall_us = wall_us

    def verify(self, headers: Mapping[str, str], body: bytes) -> str:
        """The id that was signed, or an `UnverifiedCallback`. The headers' names are lower case."""
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
            raise SignatureMissing(f"the request carries no {SIGNATURE}")
        values = "\n".join(headers.get(name, "") for name in SIGNED)
        if not self._is_signed((head + values).encode("utf-8", "replace"), signatures):
            raise SignatureMismatch(
                f"{SIGNATURE} is not that of the request's other wheelsched headers"
            )

    def _is_signed(self, signed: bytes, signatures: str) -> bool:
        given = signatures.encode("utf-8", "replace").split(b" ")
        matches = False
        for key in self._keys:
            expected = sign(key, signed).encode()
            for signature in given:
                matches |= hmac.compare_digest(signature, expected)
        return matches
