"""The gate of arming: claims go through it side by side, a hand-over closes it behind the last one.

Invariant: nobody passes while it is closed, and it is closed only when nobody is passing. Whoever
wants to close it comes before those who want to pass: a crowd that is being armed holds up no
hand-over.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Many may pass at once, or one may hold it closed."""

    def __init__(self) -> None:
        self._passing = 0
        self._closing = 0  # those who hold it closed, or wait to
        self._is_free = asyncio.Event()  # to pass
        self._is_free.set()
        self._is_empty = asyncio.Event()  # nobody passes
        self._is_empty.set()
        self._closed = asyncio.Lock()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """For what may happen side by side."""
        while self._closing:
            await self._is_free.wait()
        self._passing += 1
        self._is_empty.clear()
        try:
            yield
        finally:
            self._passing -= 1
            if not self._passing:
                self._is_empty.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """For what happens alone."""
        self._closing += 1
        self._is_free.clear()
        try:
            async with self._closed:
                await self._is_empty.wait()
                yield
        finally:
            self._closing -= 1
            if not self._closing:
                self._is_free.set()
