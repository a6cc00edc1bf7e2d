"""Waiting for what another process does, when nobody can tell us that it did.

Invariant: a condition is asked for until it holds; how long that takes decides nothing, except that
it is over at some time.
"""

import asyncio
from collections.abc import Awaitable, Callable

PATIENCE_S = 120  # for whatever a busy machine may take
PAUSE_S = 0.01


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    """Returns when a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():
            await asyncio.sleep(PAUSE_S)
