"""The ids of jobs: they begin with the time (UUID version 7), so that new ones lie together.

Invariant: the ids of a request that is sent again with its key are those of the first sending.
"""

import hashlib
from random import Random
from typing import Final
from uuid import UUID

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_RANDOM_BITS: Final = 74


class Identities:
    """The ids of what one request makes, in the order of making."""

    def __init__(self, now_us: int, seed: bytes | None, random: Random) -> None:
        self._time = now_us // 1_000 << 80
        # One generator for all: seeded by the request's key, it gives the same ids again.
        self._random = random if seed is None else Random(hashlib.sha256(seed).digest())  # noqa: S311 - ids are no secrets

    def next(self) -> UUID:
        """Another id."""
        bits = self._random.getrandbits(_RANDOM_BITS)
        high, low = bits >> 62, bits & (1 << 62) - 1
        return UUID(int=self._time | _VERSION | high << 64 | _VARIANT | low)
