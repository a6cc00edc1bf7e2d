"""The items of an AsyncWheel, which consumers take out in batches.

Invariant: an item leaves the wheel only in a batch that a consumer requested. Until then it stays
in the wheel, due or not, and can still be cancelled. There is no buffer in between.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Generic, TypeVar

from wheelsched._wheel import ObjectWheel, WheelStats
from wheelsched.aio._callbacks import check_loop
from wheelsched.errors import WheelClosed

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from wheelsched.ports import Clock

Item = TypeVar("Item")


class Batches(Generic[Item]):
    """The wheel of items. It calls `expect(when_ns)` to be woken for its consumers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wheel: ObjectWheel[Item],
        *,
        clock: "Clock",
        expect: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._wheel = wheel
        self._clock = clock
        self._expect = expect
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._wheel)

    def stats(self) -> WheelStats:
        return self._wheel.stats()

    def add(self, when_ns: int, item: Item) -> int:
        check_loop(self._loop)
        handle = self._wheel.add(when_ns, item)
        self._expect_if_waiting(when_ns)
        return handle

    def add_many(self, whens_ns: "Buffer", items: Sequence[Item]) -> "array[int]":
        check_loop(self._loop)
        handles = self._wheel.add_many(whens_ns, items)
        self._expect_if_waiting(0)
        return handles

    def cancel(self, handle: int) -> bool:
        check_loop(self._loop)
        return self._wheel.cancel(handle)

    def reschedule(self, handle: int, when_ns: int) -> bool:
        check_loop(self._loop)
        moved = self._wheel.reschedule(handle, when_ns)
        self._expect_if_waiting(when_ns)
        return moved

    def next_expiry(self) -> int | None:
        """When the next item is due; None if there is none, or if no consumer waits."""
        return self._wheel.next_expiry() if self._waiting else None

    def wake_consumers(self, now_ns: int) -> None:
        expiry_ns = self.next_expiry()
        if expiry_ns is not None and expiry_ns <= now_ns:
            self._wake_all()

    def iterate(self, limit: int) -> AsyncIterator[list[Item]]:
        check_loop(self._loop)
        limit = index(limit)
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if self._wheel.closed:
            raise WheelClosed
        return _Iterator(self, limit)

    async def next_batch(self, limit: int) -> list[Item] | None:
        """Wait for a batch; None if the wheel is closed."""
        check_loop(self._loop)
        while not self._wheel.closed:
            if batch := self._wheel.advance(self._clock.now_ns(), limit):
                return batch
            await self._expiry()
        return None

    async def yield_to_loop(self) -> None:
        await self._clock.sleep(0)

    def _expect_if_waiting(self, when_ns: int) -> None:
        if self._waiting:
            self._expect(when_ns)

    async def _expiry(self) -> None:
        woken = self._loop.create_future()
        self._waiting.append(woken)
        self._expect(0)
        try:
            await woken
        finally:
            if woken in self._waiting:
                self._waiting.remove(woken)

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for woken in waiting:
            if not woken.done():
                woken.set_result(None)

    def close(self) -> list[tuple[int, Item]]:
        """End every iteration, and return the remaining items, ordered by time."""
        pending = self._wheel.drain()
        self._wheel.close()
        self._wake_all()
        return pending


class _Iterator(AsyncIterator[list[Item]]):
    """The iterator of one consumer.

    It is not a generator, because a timeout around one step must not end the iteration.
    """

    def __init__(self, batches: Batches[Item], limit: int) -> None:
        self._batches = batches
        self._limit = limit
        self._has_begun = False

    async def __anext__(self) -> list[Item]:
        # A consumer that awaits nothing else must not block the loop.
        if self._has_begun:
            await self._batches.yield_to_loop()
        self._has_begun = True
        batch = await self._batches.next_batch(self._limit)
        if batch is None:
            raise StopAsyncIteration
        return batch
