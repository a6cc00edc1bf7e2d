"""Hints: news of what has changed.

Invariant: hints make things faster, never right; whoever misses one finds the change at the next
refresh.
"""

from typing import Protocol
from uuid import UUID

from msgspec import Struct


class Hint(Struct, frozen=True):
    """A job of a partition has changed, or has a run that wants attention: load it again.

    Without a job: the partition became free.
    """

    partition: int
    job_id: UUID | None = None
    is_unplanned: bool = False  # an application wrote or removed it: there is something to plan


class HintSource(Protocol):
    """Hints, delivered to whoever opened the source."""

    async def confirm(self) -> None:
        """Returns when every hint of what committed before the call has been delivered.

        Raises `StoreUnavailable` when the source hears nothing any more: open another one.
        """

    async def close(self) -> None:
        """Delivers no more."""
