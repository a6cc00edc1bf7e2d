"""A base class for resources that are used in `async with`.

Invariant: the resource is closed however the block ends, and its exceptions propagate.
"""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closes itself at the end of an `async with` block."""

    @abstractmethod
    async def close(self) -> None:
        """Release the resource."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
