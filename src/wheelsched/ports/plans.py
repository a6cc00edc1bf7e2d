"""The store of drafts: jobs that applications write in their own transactions.

Invariant: a draft that has changed, or that another transaction is changing, is left as it is.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import Draft
from wheelsched.ports.jobs import Registration
from wheelsched.ports.leases import Lease


class Unplanned(Struct, frozen=True):
    """A job that an application has written or removed, and that a shard has to plan.

    `number` is its position in the list of unplanned jobs. Without a draft, the job was deleted, or
    has been planned since.
    """

    number: int
    job_id: UUID
    draft: Draft | None


class Plan(Struct, frozen=True, kw_only=True):
    """The decision about a draft: a job with its first due time, or an error."""

    number: int
    draft: Draft
    registration: Registration | None = None
    error: str | None = None


class Planned(Struct, frozen=True):
    """The jobs that were accepted and refused. All others are unchanged."""

    accepted: frozenset[UUID]
    refused: frozenset[UUID]


ValidateDraft = Callable[[Draft], Registration]  # raises `InvalidDocument` or `InvalidField`


class PlanStore(Protocol):
    """The store of the *plan* stage.

    The writing methods may raise `LeaseLost` or `FenceRaised`. Then nothing was written.
    """

    async def list_unplanned(self, partitions: Collection[int], limit: int) -> list[Unplanned]:
        """The unplanned jobs of these partitions, one-offs first, by due time."""

    async def plan(self, lease: Lease, plans: Sequence[Plan]) -> Planned:
        """Write the definitions and timers of accepted drafts, and the errors of refused ones.

        A draft that would exceed the quota of its tenant is refused.
        """

    async def clear(self, lease: Lease, numbers: Collection[int]) -> None:
        """Clean up after deleted jobs: delete their timers and cancel their waiting runs.

        Removes them from the list, together with jobs that have been planned since.
        """
