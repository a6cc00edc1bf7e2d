"""Notifications about changed jobs.

Invariant: hints only reduce latency. A shard that misses a hint finds the change at its next
refresh.
"""

from typing import Protocol
from uuid import UUID

from msgspec import Struct


class Hint(Struct, frozen=True):
    """A job changed or has a new run, so its shard must load it again.

    Without a job, the partition became free.
    """

    partition: int
    job_id: UUID | None = None
    is_unplanned: bool = False  # an application wrote or removed it, so it must be planned


class HintSource(Protocol):
    """Delivers hints to the callback that it was opened with."""

    async def confirm(self) -> None:
        """Return once the hints of all changes committed before this call are delivered.

        Raises `StoreUnavailable` if the connection is lost. Then open another source.
        """

    async def close(self) -> None:
        """Stop the delivery."""
