"""Deduplication: of all attempts with one idempotency key, one takes effect.

Invariant: a key is done when the first attempt of it ended well, and from then on no other begins;
when that failed, the key is as if it had never been seen.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.errors import RunInProgress
from wheelsched.ports import Clock
from wheelsched.worker.delivery import Connection

WAIT_MS = 500  # whoever asks may ask again; meanwhile it has a place, and perhaps a connection
DAY_MS = 86_400_000


class Claim(Struct, frozen=True):
    """What became of asking for a key."""

    is_first: bool  # False: it is done already
    connection: Connection | None = None


class Deduplication(Protocol):
    """Knows which keys are done."""

    def once(self, key: str) -> AbstractAsyncContextManager[Claim]:
        """Holds the key while the body runs: leaving it well makes the key done.

        Leaving it by an exception gives the key back. While somebody else holds the key it
        waits for a moment, and then raises `RunInProgress`: the worker asks again, for as long as
        the sender of the run waits.
        """


class MemoryOnce:
    """`Deduplication` in memory: of this process, since it began, the latest `capacity` keys."""

    def __init__(
        self,
        *,
        capacity: int = 100_000,
        keep_ms: int = DAY_MS,
        wait_ms: int = WAIT_MS,
        clock: Clock | None = None,
    ) -> None:
        self._capacity = capacity
        self._keep_ns = keep_ms * 1_000_000
        self._wait_s = wait_ms / 1_000
        self._clock = clock or SystemClock()
        self._done: OrderedDict[str, int] = OrderedDict()  # until when it is remembered
        self._held: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def once(self, key: str) -> AsyncIterator[Claim]:
        if key in self._held:
            await self._wait_for_turn(key)
        if self._done.get(key, 0) > self._clock.now_ns():
            yield Claim(is_first=False)
            return
        released = asyncio.get_running_loop().create_future()
        self._held[key] = released
        try:
            yield Claim(is_first=True)
            self._remember(key)
        finally:
            del self._held[key]
            released.set_result(None)

    async def _wait_for_turn(self, key: str) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while (released := self._held.get(key)) is not None:
                    await asyncio.wait([released])
        except TimeoutError as error:
            raise RunInProgress from error

    def _remember(self, key: str) -> None:
        now_ns = self._clock.now_ns()
        self._done[key] = now_ns + self._keep_ns
        self._done.move_to_end(key)
        while len(self._done) > self._capacity or next(iter(self._done.values())) <= now_ns:
            self._done.popitem(last=False)
