"""Changes of what was read: begun again from the start when somebody else came in between.

Invariant: nothing is changed but from what it was read as, and nobody goes on for ever.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from wheelsched.errors import StoreError

LOOKS: Final = 5

Made = TypeVar("Made")


async def look_and_change(
    change: Callable[[], Awaitable[Made]], overtaken: type[StoreError]
) -> Made:
    """What a change gives, which looks first, and raises `overtaken` when it then came too late."""
    for _ in range(LOOKS - 1):
        with suppress(overtaken):
            return await change()
    return await change()
