"""The interface of a batch of runs in the fair queue."""

from collections.abc import Hashable
from typing import Protocol, Self, TypeVar

from wheelsched.core.model import Lane
from wheelsched.ports import Route


class Batch(Protocol):
    """The runs of one request; `len` counts them. A batch changes while it is queued only in
    `split` and in `FairQueue.drop_withdrawn`."""

    @property
    def route(self) -> Route: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def priority(self) -> int: ...
    @property
    def subject(self) -> Hashable:
        """What a failed response counts against: the job, or the route if it takes batches."""

    @property
    def claim_by_us(self) -> int:
        """Until when it may wait for the credits of its room, by the machine's clock."""

    def split(self, count: int) -> Self:
        """Removes the first `count` runs, and returns them as another batch."""

    def __len__(self) -> int: ...


B = TypeVar("B", bound=Batch)
