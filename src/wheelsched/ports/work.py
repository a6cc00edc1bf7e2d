"""The ports between shards and workers that pull.

A shard has *desks*: one for each process that hands its runs to workers. A process has one
`WorkSource`, which lends the credits of its workers to the desks of all shards.

Invariant: a desk hands out at most one run for each credit that it was lent, and only runs of the
tenant and the queues of that credit.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import RunKey
from wheelsched.core.outcome import Outcome

DELIVERY_LEASE_US = 5_000_000  # until the first heartbeat


class Attempted(NamedTuple):
    """An attempt of a run: what an outcome or a heartbeat is for."""

    key: RunKey
    token: int


class QueueRun(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A run that is handed to a worker.

    `content` is the JSON object of the API's claim, without `lease_expires_at` and without its
    closing brace: the protocols append both.
    """

    attempt: Attempted
    queue: str
    content: bytes


class Pool(Struct, frozen=True, array_like=True):
    """The workers of one process that take runs of the same queues."""

    tenant_id: UUID
    queues: tuple[str, ...]  # sorted


class Waiting(Struct, frozen=True, array_like=True):
    """The runs of a queue that are due and wait for a credit."""

    queue: str
    count: int
    oldest_us: int | None = None  # the time of the one that has waited longest


class Receiver(Protocol):
    """The process behind a desk. None of its methods blocks or raises."""

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        """Gives runs to workers of the pool; each has used one credit.

        Their delivery lease ends at `until_us`, by the database's clock.
        """

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        """Tells the workers that hold these runs to stop."""

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        """Tells how many runs of a queue wait for a credit, when that changes; 0 if none does.

        Only for queues of the pools that were lent to the desk. The order of `wait` and `hand_out`
        is that of the events.
        """


class Receipt(StrEnum):
    """What a desk did with the outcome of an attempt."""

    WRITTEN = "written"
    STALE = "stale"  # another attempt has begun, or the run has ended
    UNKNOWN = "unknown"  # this shard does not have it: write the outcome to the database


class Desk(Protocol):
    """One shard as a process sees it that hands out its runs: over a link, or in the process."""

    def lend(self, pool: Pool, count: int) -> None:
        """Adds credits. With 0 it only makes the pool known.

        If runs wait for a pool that was not known, its receiver is told at once (`wait`).
        """

    def recall(self, pool: Pool, count: int, returned: Callable[[int], None]) -> None:
        """Takes back up to this many unused credits, and calls `returned` with their number.

        A desk that is closed or lost meanwhile does not call `returned`: all its credits are void.
        """

    def forget(self, pool: Pool) -> None:
        """The process has no workers of this pool any more. Its unused credits are void."""

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        """Reports how attempts ended. Returns when they are written.

        Raises `LinkLost` if the answer was lost: the outcomes may have been written, or not.
        """

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        """Returns runs that no worker has begun: they wait again, and no attempt is counted."""

    async def waiting(self, tenant_id: UUID) -> list[Waiting]:
        """The queues of a tenant in which runs wait, whether or not they have workers."""

    def pause(self) -> None:
        """Hands out nothing until `resume`, because the process does not keep up."""

    def resume(self) -> None:
        """Hands out runs again."""

    def close(self) -> None:
        """Returns all credits. Runs that were handed out keep their delivery lease."""


class Desks(Protocol):
    """Where a shard hands out its runs."""

    def open(self, receiver: Receiver) -> Desk:
        """A new desk for a process."""


class WorkerOutcome(Struct, frozen=True, kw_only=True):
    """What a worker reports about an attempt."""

    attempt: Attempted
    outcome: Outcome


class Reported(NamedTuple):
    """The answer to an outcome: whether it counts, and why not."""

    is_accepted: bool
    reason: str | None = None


class Held(NamedTuple):
    """The answer to a heartbeat: whether the worker still has the run, and whether to stop it."""

    is_held: bool
    is_cancelled: bool = False


class Subscription(Protocol):
    """One worker: its queues and its credits."""

    def add_credits(self, count: int) -> None:
        """The worker takes this many more runs."""

    async def withdraw(self) -> None:
        """Takes back all unused credits. Runs that arrive later are given back.

        Until it returns, within two seconds, `take` may still be called.
        """


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue of a tenant, for `GET /queues`."""

    queue: str
    depth: int  # runs that are due and wait for a worker
    oldest_us: int | None = None  # the time of the one that has waited longest
    workers: int = 0  # connected to this process
    credits: int = 0


class WorkSource(Protocol):
    """The queues of all shards, for the protocols that workers speak."""

    def subscribe(
        self,
        tenant_id: UUID,
        queues: Sequence[str],
        take: Callable[[Sequence[QueueRun], int], None],
        cancel: Callable[[Sequence[Attempted]], None],
    ) -> Subscription:
        """Registers a worker. `take` gets at most as many runs as it has credits, with the end of
        their delivery lease, by the database's clock."""

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        """Reports outcomes, in order. Each one that is accepted was written."""

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        """Keeps each run for another lease; the timeout of its job if that is None."""

    def give_back(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> set[Attempted]:
        """Returns runs that a worker has not begun. Those in the answer went to their shard.

        A run that this process has not handed out, or whose shard is lost, keeps its lease.
        """

    async def queues(self, tenant_id: UUID) -> list[QueueState]:
        """The queues of a tenant, as the shards that this process reaches know them."""
