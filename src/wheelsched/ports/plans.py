"""Jobs that applications write in transactions of their own, as stage *plan* sees to them.

Invariant: a draft that is another by now, or that somebody is changing, is left as it is.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import Draft
from wheelsched.ports.jobs import Registration
from wheelsched.ports.leases import Lease


class Unplanned(Struct, frozen=True):
    """A job that its user's own transaction has written, or removed, and that a shard has to see
    to: by the place in the list of those. Without a draft it is gone, or was planned since."""

    number: int
    job_id: UUID
    draft: Draft | None


class Plan(Struct, frozen=True, kw_only=True):
    """What a shard makes of a draft: a job with its first due time, or the reason why not."""

    number: int
    draft: Draft
    registration: Registration | None = None
    error: str | None = None


class Planned(Struct, frozen=True):
    """Which jobs are planned now, and which are refused. The others are as they were."""

    accepted: frozenset[UUID]
    refused: frozenset[UUID]


Judge = Callable[[Draft], Registration]  # or `InvalidDocument` and its like


class PlanStore(Protocol):
    """What the *plan* stage asks for.

    What writes raises `LeaseLost` or `FenceRaised`, and then has written nothing.
    """

    async def list_unplanned(self, partitions: Collection[int], limit: int) -> list[Unplanned]:
        """What is to be seen to in these partitions, one-offs by their due time first."""

    async def plan(self, lease: Lease, plans: Sequence[Plan]) -> Planned:
        """Gives drafts their definitions and timers, or their refusal.

        What would exceed the quota of its tenant is refused.
        """

    async def clear(self, lease: Lease, numbers: Collection[int]) -> None:
        """Removes what jobs that are gone have left: timers, and waiting runs, which are cancelled.

        Strikes them off the list, and those that have been planned since.
        """
