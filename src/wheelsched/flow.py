"""Queues between tasks, and loops that let other tasks run.

Invariant: a queue has one reader, and never grows without a bound.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Generic, TypeVar

from wheelsched.errors import InboxFull
from wheelsched.ports import Clock

Item = TypeVar("Item")

SLICE = 500  # items, at some microseconds each


class Inbox(Generic[Item]):
    """A queue with many writers and one reader.

    The bound is a safety net: every item was counted against another limit before. An inbox that
    overflows is a bug, and ends the shard before it runs out of memory.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._items: deque[Item] = deque()
        self._has_items = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        if len(self._items) >= self._bound:
            raise InboxFull(f"the inbox is full: it holds {self._bound:,} items")
        self._items.append(item)
        self._has_items.set()

    async def take(self, most: int = SLICE) -> list[Item]:
        """Waits for items, and takes up to `most` of the oldest."""
        await self._has_items.wait()
        items = self._items
        taken: list[Item] = []
        while items and len(taken) < most:
            taken.append(items.popleft())
        if not items:
            self._has_items.clear()
        return taken


class Pending(Generic[Item]):
    """A set of things to do: an item that is put twice before it is taken is taken once."""

    def __init__(self) -> None:
        self._items: dict[Item, None] = {}
        self._has_items = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: Item) -> bool:
        return item in self._items

    def put(self, *items: Item) -> None:
        self._items.update(dict.fromkeys(items))
        if self._items:
            self._has_items.set()

    async def wait(self) -> None:
        """Returns when there are items."""
        await self._has_items.wait()

    async def take(self) -> list[Item]:
        """Waits for items, and takes all of them in the order in which they were put."""
        await self._has_items.wait()
        self._has_items.clear()
        taken, self._items = list(self._items), {}
        return taken


async def yielding(
    clock: Clock, items: Iterable[Item], size: int = SLICE
) -> AsyncIterator[Sequence[Item]]:
    """Yields the current items in slices, and lets the event loop run after each.

    An item may have changed by the time its slice is yielded: the caller has to check.
    """
    everything = tuple(items)
    for start in range(0, len(everything), size):
        yield everything[start : start + size]
        await clock.sleep(0)
