"""Reads that share a statement with others that wait for a connection at the same time.

Invariant: a read joins only a statement that has not been sent, so it sees everything that was
committed before it began. A read that is cancelled leaves the statement to the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Final, Generic, TypeVar

from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database

MAX_ITEMS: Final = 100  # of one statement; as many jobs as a page has

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)
Found = TypeVar("Found")


class SharedReads(Generic[Key, Item, Found]):
    """Reads of one kind. Those with the same key share a statement, which reads their items."""

    def __init__(
        self,
        database: Database,
        fetch: Callable[[Connection, Key, Collection[Item]], Awaitable[Found]],
    ) -> None:
        self._database = database
        self._fetch = fetch
        self._open: dict[Key, set[Item]] = {}  # the items of statements that are not sent yet
        self._statements: dict[Key, asyncio.Task[Found]] = {}
        self._running: set[asyncio.Task[Found]] = set()

    async def read(self, key: Key, item: Item) -> Found:
        """What the statement found, for this item and for others."""
        items = self._open.get(key)
        if items is None or len(items) == MAX_ITEMS:
            items = self._open[key] = set()
            statement = asyncio.get_running_loop().create_task(self._run(key, items))
            self._statements[key] = statement
            self._running.add(statement)
            statement.add_done_callback(self._running.discard)
        items.add(item)
        return await asyncio.shield(self._statements[key])

    async def _run(self, key: Key, items: set[Item]) -> Found:
        try:
            async with self._database.connection() as connection:
                self._close(key, items)
                return await self._fetch(connection, key, items)
        finally:
            self._close(key, items)

    def _close(self, key: Key, items: set[Item]) -> None:
        """Lets no further read join."""
        if self._open.get(key) is items:
            del self._open[key]
            del self._statements[key]
