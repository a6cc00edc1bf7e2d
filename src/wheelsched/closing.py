"""What is used in `async with`, and holds something until then.

Invariant: it is closed however the block ends, and hides nothing that was raised there.
"""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closes itself at the end of its block."""

    @abstractmethod
    async def close(self) -> None:
        """Gives back what it holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
