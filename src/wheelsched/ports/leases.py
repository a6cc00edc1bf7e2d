"""The store of leases and partitions: which shards may write, and what they own.

Invariant: only its own shard renews a lease, and a partition has one owner per epoch. Epochs never
repeat and never go down, even if the database forgets what it has committed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.lease import Backend
from wheelsched.core.model import BreakerKind
from wheelsched.core.offset import ClockSample
from wheelsched.ports.links import ShardLink

NO_EPOCHS: Final[Mapping[int, int]] = MappingProxyType({})


class Lease(Struct, frozen=True):
    """A shard's right to write. Every statement that arms carries it.

    The fence grows whenever the shard hands over partitions. A delayed statement with an older
    fence then changes nothing.
    """

    shard_id: UUID
    fence: int


class Renewal(Struct, frozen=True):
    """What a confirmed renewal says of the lease."""

    renewals: int
    fence: int
    server_started_us: int | None = None  # None on an engine that does not report it


class BackendView(Struct, frozen=True):
    """The backend of a shard's lease connection, as an observer sees it."""

    shard_id: UUID
    renewals: int
    backend: Backend
    is_alive: bool


class ShardView(Struct, frozen=True, kw_only=True):
    """The lease of a shard, as other shards see it."""

    shard_id: UUID
    renewals: int
    is_expired: bool  # by the database's clock
    is_leaving: bool  # it takes no more partitions
    started_at_us: int
    address: str | None = None
    link_address: str | None = None
    went_back_at_us: int | None = None  # its process last noticed that the database went back


class OpenBreaker(Struct, frozen=True, kw_only=True):
    """An open circuit breaker, as its shard reports it."""

    kind: BreakerKind
    tenant_id: UUID
    target: str  # an origin, or the URL of a target with batches
    job_id: UUID | None = None
    opened_at_us: int
    next_probe_at_us: int
    error: str


class PartitionOwner(Struct, frozen=True):
    """The owner of a partition and its epoch."""

    partition: int
    owner: UUID | None
    epoch: int
    released_epoch: int = 0  # the last epoch that ended by a release; set on acquisition
    released_at_us: int | None = None  # when that was


class Survey(Struct, frozen=True):
    """All shards and all partitions. The partitions are read first: a shard that is listed had its
    lease when its partitions were read."""

    shards: tuple[ShardView, ...]
    partitions: tuple[PartitionOwner, ...]


class LeaseStore(Protocol):
    """Leases and partitions: the *acquire* stage."""

    async def join(
        self,
        shard_id: UUID,
        ttl_us: int,
        address: str | None = None,
        went_back_at_us: int | None = None,
        link: ShardLink | None = None,
    ) -> Lease:
        """Start a lease. Each process start needs a new id.

        Publishes the backend of the lease connection, if it is known, and where the shard accepts
        links.
        """

    async def renew(self, lease: Lease, ttl_us: int, known_renewals: int = 0) -> Renewal:
        """Renew the lease. Raises `LeaseLost` if it is gone.

        Renewals go over one connection, the lease connection, and publish its backend. A lease with
        fewer renewals than are known to be confirmed is from the past: it is returned unchanged.
        """

    def is_connected(self) -> bool:
        """Whether the connection of the last confirmed renewal is still open.

        Asks the operating system, so that a process that was frozen sees the end at once.
        """

    async def wait_disconnected(self) -> None:
        """Return when the connection of the last confirmed renewal has ended."""

    async def watch_backends(self) -> Sequence[BackendView]:
        """Read the published backends of all shards, the observer's own among them.

        Cheap enough for ten times a second. Empty where backends cannot be seen.
        """

    async def survey(self) -> Survey:
        """Read all shards and all partitions."""

    async def acquire(
        self,
        lease: Lease,
        partitions: Collection[int],
        known_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> list[PartitionOwner]:
        """Take those of the partitions that are free, each with a new epoch.

        Returns all of the partitions that the shard owns now. Each has a greater epoch than the
        known one. A new epoch is also greater than the last one in the table, and at least the
        seconds of the database's clock since 2026.
        """

    async def release(
        self, lease: Lease, partitions: Collection[int], *, is_leaving: bool = False
    ) -> Lease:
        """Free partitions, after all statements in flight have ended.

        Returns the lease to use from now on. Statements with the old one write nothing more. A
        shard that is leaving keeps its lease until its runs in flight have ended.
        """

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        """End the lease of a dead shard and free its partitions, after its last statement.

        It succeeds only if the lease has expired and still has this number of renewals.
        """

    async def take_over_gone(self, lease: Lease, gone: BackendView) -> bool:
        """End the lease of a shard whose lease connection has ended, and free its partitions.

        It succeeds only if this backend is still the published one and is gone, in the current
        lifetime of the server, and the shard has not renewed since.
        """

    async def certify_death(self, shard_id: UUID) -> bool:
        """End the lease of a process that its parent has waited for. True if there was one."""

    async def leave(self, lease: Lease) -> None:
        """End the shard's own lease and free its partitions."""

    async def tell(self, lease: Lease, breakers: Sequence[OpenBreaker]) -> None:
        """Report the open breakers of the shard. This replaces its last report."""

    async def read_breakers(
        self, shard_id: UUID | None = None
    ) -> Mapping[UUID, Sequence[OpenBreaker]]:
        """The open breakers of one shard or of all, without shards that have none."""

    async def read_clock(self, now_ns: Callable[[], int]) -> ClockSample:
        """Read the database's clock between two readings of `now_ns`.

        The readings must be as close as possible: waiting for a connection or for the loop in
        between makes the sample less precise.
        """
