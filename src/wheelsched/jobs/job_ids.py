"""Ids of new jobs: UUIDs version 7, which begin with the time, so that an index grows at its end.

Invariant: a request that is retried with its idempotency key gets the same ids again, and each id
of a request is greater than the one before it.
"""

import hashlib
from random import Random
from typing import Final
from uuid import UUID

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_FIRST_BITS: Final = 73  # of 74: the ids of one request never overflow the random part
_STEP_BITS: Final = 32


class Identities:
    """Generates the ids of what one request creates."""

    def __init__(self, now_us: int, seed: bytes | None, random: Random) -> None:
        self._time = now_us // 1_000 << 80
        # Seeded by the idempotency key of the request, so that a retry generates the same ids.
        self._random = random if seed is None else Random(hashlib.sha256(seed).digest())  # noqa: S311 - ids are not secret
        self._last = self._random.getrandbits(_FIRST_BITS)

    def next(self) -> UUID:
        """The next id."""
        self._last += 1 + self._random.getrandbits(_STEP_BITS)
        high, low = self._last >> 62, self._last & (1 << 62) - 1
        return UUID(int=self._time | _VERSION | high << 64 | _VARIANT | low)
