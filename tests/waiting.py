"""Waits for a condition that only polling can detect, e.g. in another process.

Invariant: the condition is polled until it holds. No test depends on how long that takes, up to a
limit that even a busy machine keeps.
"""

import asyncio
from collections.abc import Awaitable, Callable

WAIT_LIMIT_S = 120  # enough for a busy machine
PAUSE_S = 0.01


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    """Returns when a condition holds."""
    async with asyncio.timeout(WAIT_LIMIT_S):
        while not await is_so():
            await asyncio.sleep(PAUSE_S)
