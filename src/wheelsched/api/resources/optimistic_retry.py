"""Optimistic concurrency: read, change, and retry on conflict.

Invariant: a change applies only to the version that was read, and the number of attempts is
bounded.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from wheelsched.errors import StoreError

ATTEMPTS: Final = 5

Made = TypeVar("Made")


async def retry_on_conflict(
    change: Callable[[], Awaitable[Made]], conflict: type[StoreError]
) -> Made:
    """Runs `change`, which reads and then writes; retries it when it raises `conflict`."""
    for _ in range(ATTEMPTS - 1):
        with suppress(conflict):
            return await change()
    return await change()
