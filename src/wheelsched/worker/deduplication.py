"""Deduplicates runs: of all attempts with one idempotency key, one takes effect.

Invariant: a key is done once an attempt with it succeeded. After that no other attempt starts. A
failed attempt leaves no trace of its key.
"""

import asyncio
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.errors import RunInProgress
from wheelsched.ports import Clock
from wheelsched.worker.delivery import Connection

WAIT_MS = 500  # short, because a waiting attempt occupies a slot and perhaps a connection
DAY_MS = 86_400_000


class Claim(Struct, frozen=True):
    """The result of claiming a key."""

    is_first: bool  # False: the key is already done
    connection: Connection | None = None


class Deduplication(Protocol):
    """Stores which keys are done."""

    def once(self, key: str) -> AbstractAsyncContextManager[Claim]:
        """Hold the key while the body runs, and mark it done when the body succeeds.

        An exception in the body releases the key. If another attempt holds the key, it waits
        briefly and then raises `RunInProgress`. The worker tries again for as long as the sender
        of the run waits.
        """


FIRST: Final = Claim(is_first=True)
REPEATED: Final = Claim(is_first=False)


class MemoryOnce:
    """`Deduplication` in the memory of this process, for the latest `capacity` keys."""

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
        self._done: OrderedDict[str, int] = OrderedDict()  # key: when it expires
        self._held: dict[str, asyncio.Future[None] | None] = {}  # a future if another waits

    def once(self, key: str) -> "_HeldKey":
        return _HeldKey(self, key)

    async def hold(self, key: str) -> bool:
        """Holds a key, or returns False because it is done."""
        if key in self._held:
            await self._wait_for_release(key)
        expires_ns = self._done.get(key)
        if expires_ns is not None and expires_ns > self._clock.now_ns():
            return False
        self._held[key] = None
        return True

    def release(self, key: str, *, is_done: bool) -> None:
        """Releases a key that was held."""
        if is_done:
            self._mark_done(key)
        released = self._held.pop(key)
        if released is not None:
            released.set_result(None)

    async def _wait_for_release(self, key: str) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while key in self._held:
                    released = self._held[key]
                    if released is None:
                        released = asyncio.get_running_loop().create_future()
                        self._held[key] = released
                    await asyncio.wait([released])
        except TimeoutError as error:
            raise RunInProgress from error

    def _mark_done(self, key: str) -> None:
        now_ns = self._clock.now_ns()
        self._done[key] = now_ns + self._keep_ns
        self._done.move_to_end(key)
        while len(self._done) > self._capacity or next(iter(self._done.values())) <= now_ns:
            self._done.popitem(last=False)


class _HeldKey:
    """The block in which a key of `MemoryOnce` is held. A class, because it runs for each run."""

    __slots__ = ("_is_held", "_key", "_once")

    def __init__(self, once: MemoryOnce, key: str) -> None:
        self._once = once
        self._key = key
        self._is_held = False

    async def __aenter__(self) -> Claim:
        self._is_held = await self._once.hold(self._key)
        return FIRST if self._is_held else REPEATED

    async def __aexit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if self._is_held:
            self._once.release(self._key, is_done=kind is None)
