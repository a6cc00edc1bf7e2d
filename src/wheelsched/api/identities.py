"""The ids of jobs: they begin with the time (UUID version 7), so that new ones lie together.

Invariant: the ids of a request that is sent again with its key are those of the first sending, and
each is greater than the one before it: what is made together is appended to an index, page by page.
"""

import hashlib
from random import Random
from typing import Final
from uuid import UUID

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_FIRST_BITS: Final = 73  # of 74: no request makes so many that the last one would not fit
_STEP_BITS: Final = 32


class Identities:
    """The ids of what one request makes, in the order of making."""

    def __init__(self, now_us: int, seed: bytes | None, random: Random) -> None:
        self._time = now_us // 1_000 << 80
        # One generator for all: seeded by the request's key, it gives the same ids again.
        self._random = random if seed is None else Random(hashlib.sha256(seed).digest())  # noqa: S311 - ids are no secrets
        self._last = self._random.getrandbits(_FIRST_BITS)

    def next(self) -> UUID:
        """Another id."""
        self._last += 1 + self._random.getrandbits(_STEP_BITS)
        high, low = self._last >> 62, self._last & (1 << 62) - 1
        return UUID(int=self._time | _VERSION | high << 64 | _VARIANT | low)
