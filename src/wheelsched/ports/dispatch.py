"""The port for delivering runs to workers: as callbacks, or handed to workers that pull.

Invariant: every callback that was sent ends with an outcome, never with an exception. A run that is
handed to a worker that pulls has its outcome reported later, to the `RunOwner`.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import RunKey, Target, Trigger
from wheelsched.core.outcome import HandedOut, Outcome
from wheelsched.core.targets.egress import OwnListener
from wheelsched.ports.work import Attempted, Receipt, Waiting

# The outcome of each callback, in order. None: nothing was sent.
Sending: TypeAlias = asyncio.Future[list[Outcome] | None] | asyncio.Future[HandedOut | None]


class Callback(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of one run, with everything that its worker receives."""

    key: RunKey
    job_name: str
    payload: bytes  # JSON, sent byte for byte
    secrets: tuple[str, ...]  # of the tenant, newest first; each signs the request
    scheduled_us: int
    send_at_us: int
    timeout_us: int
    attempt: int  # from 1
    token: int
    trigger: Trigger
    idempotency_key: str


class Room:
    """How many runs of a queue may be handed out now, and how many wait for that.

    The dispatcher sets `credits` and calls `RunOwner.room_changed` when the first one comes and
    when the last one is used. The fair queue sets `waiting` and calls `waiting_changed`.
    """

    __slots__ = ("__weakref__", "credits", "is_held", "late", "waiting", "withdrawn")

    def __init__(self) -> None:
        self.credits = 0
        self.waiting = 0
        self.late = 0  # of the waiting runs, those in the late lane
        self.withdrawn = 0  # of the waiting runs, since they were last looked through
        self.is_held = False  # until its first runs are read again

    def waiting_changed(self) -> None:
        """Called after each change of `waiting`."""


class Route(Struct, frozen=True, eq=False, kw_only=True, weakref=True):
    """The destination of runs: one object for each tenant and target.

    Runs of a route with a room wait until it has credits, for at most `claim_within_us`.
    """

    tenant_id: UUID
    target: Target
    batch: int = 1  # the most runs that share a request
    origin: str  # scheme, host and port, or a queue; limits and circuit breakers apply to it
    room: Room | None = None  # None: unlimited
    claim_within_us: int = 0


class Prepared(Struct, frozen=True, kw_only=True, gc=False):
    """A callback that is encoded and signed ahead of its time.

    It keeps its secrets, because a callback that is sent late is signed again, and a batch is
    signed when its runs are known.
    """

    run_id: str
    idempotency_key: str
    token: int
    send_at_us: int
    timeout_us: int
    secrets: tuple[str, ...]
    content: bytes  # the request; on a route with batches, one element of its array


class RunOwner(Protocol):
    """The shard behind a dispatcher: what workers that pull report goes there."""

    def room_changed(self, room: Room) -> None:
        """A room has got its first credit, or used its last one."""

    def lease_end_us(self) -> int:
        """When the delivery lease of a run ends that is handed out now, by the database's clock."""

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        """Reports how attempts ended that were handed out. Returns when they are written."""

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        """Queues runs again that were handed out and not begun."""

    def waiting(self, tenant_id: UUID) -> list[Waiting]:
        """The queues of a tenant in which runs wait."""


class Dispatcher(Protocol):
    """Delivers runs to workers. The *arm* stage prepares them, the *fire* stage sends them."""

    def serve(self, owner: RunOwner | None) -> None:
        """Report to this shard from now on; None: it has lost its lease, or has stopped."""

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        """Send no callbacks to these listeners, which are the status ports of the shards."""

    def route(self, tenant_id: UUID, target: Target) -> Route:
        """The route of a target. While it is referenced, the same object is returned.

        An invalid target has a route too: everything sent there is rejected.
        """

    def prepare(self, route: Route, callback: Callback) -> Prepared:
        """Encode and sign a callback ahead of its time."""

    def send(self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]) -> Sending:
        """Send a batch as one request: at once, or as soon as a connection is free.

        The future resolves to the outcome of each callback, in order, within the longest timeout of
        the batch. Every failure is an outcome. `begin` is called at the moment that the request
        goes to the socket. If it returns False, nothing is sent and the future resolves to None.
        Cancelling the future discards the response.

        A batch on a route with a room is not larger than the credits of the room. It is handed out
        before `send` returns, and the future resolves to `HandedOut`.
        """

    def cancel(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> None:
        """Tell the workers that pull to stop these runs, if they have them."""
