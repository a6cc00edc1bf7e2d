"""Leases and partitions: who may write, and who owns what.

Invariant: only the shard that a lease names renews it, and a partition has one owner per epoch.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import BreakerKind
from wheelsched.core.offset import ClockSample


class Lease(Struct, frozen=True):
    """A shard's right to write, as its statements name it.

    The fence grows whenever the shard hands partitions over: a statement that still carries the
    old one, and that somebody believed lost, does nothing when it arrives after that.
    """

    shard_id: UUID
    fence: int


class ShardView(Struct, frozen=True, kw_only=True):
    """The lease of a shard, as another sees it."""

    shard_id: UUID
    renewals: int
    is_expired: bool  # by the database's clock
    is_leaving: bool  # it wants no partitions any more
    started_at_us: int
    address: str | None = None


class OpenBreaker(Struct, frozen=True, kw_only=True):
    """A circuit breaker that holds runs back, as its shard shows it."""

    kind: BreakerKind
    tenant_id: UUID
    target: str  # an origin, or of a target with batches its URL
    job_id: UUID | None = None
    opened_at_us: int
    next_probe_at_us: int
    error: str


class Ownership(Struct, frozen=True):
    """Who owns a partition, in which epoch."""

    partition: int
    owner: UUID | None
    epoch: int
    released_epoch: int = 0  # the last one whose owner released it; told to who acquires it


class Survey(Struct, frozen=True):
    """All shards and all partitions."""

    shards: tuple[ShardView, ...]
    partitions: tuple[Ownership, ...]


class LeaseStore(Protocol):
    """Leases and partitions: the *acquire* stage."""

    async def join(self, shard_id: UUID, ttl_us: int, address: str | None = None) -> Lease:
        """Begins a lease. The id is fresh for each start of a process."""

    async def renew(self, lease: Lease, ttl_us: int) -> None:
        """Prolongs the lease, or raises `LeaseLost`."""

    async def survey(self) -> Survey:
        """Looks at everybody."""

    async def acquire(self, lease: Lease, partitions: Collection[int]) -> list[Ownership]:
        """Takes those of the partitions that nobody owns, each with a new epoch.

        Gives all of them that are the shard's now.
        """

    async def release(
        self, lease: Lease, partitions: Collection[int], *, is_leaving: bool = False
    ) -> Lease:
        """Hands partitions over to whoever takes them, after every statement in flight.

        Gives the lease to go on with. Of what was sent with the old one, nothing more is written.
        A shard that is leaving keeps its lease, to finish what it has sent.
        """

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        """Ends the lease of a dead shard and frees its partitions, after its last statement.

        Does so only if the lease has expired and was renewed no more than `renewals` times.
        """

    async def leave(self, lease: Lease) -> None:
        """Ends the shard's own lease and frees its partitions."""

    async def tell(self, lease: Lease, breakers: Sequence[OpenBreaker]) -> None:
        """Shows the open breakers of the shard, in place of those that it showed before."""

    async def read_breakers(
        self, shard_id: UUID | None = None
    ) -> Mapping[UUID, Sequence[OpenBreaker]]:
        """The open breakers of a shard, or of all of them; without the shards that have none."""

    async def read_clock(self, now_ns: Callable[[], int]) -> ClockSample:
        """The time by the database's clock, between two looks at another one, as close as can be:
        what is waited for besides, a connection or a turn of the loop, makes it less certain."""
