"""Dispatch: callbacks on their way to workers.

Invariant: whatever happens to a callback that was sent is an outcome, never an error.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.egress import OwnListener
from wheelsched.core.model import RunKey, Target, Trigger
from wheelsched.core.outcome import Outcome


class Callback(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of one run, as its worker is to see it."""

    key: RunKey
    job_name: str
    payload: bytes  # JSON, sent byte for byte
    secrets: tuple[str, ...]  # of the tenant, newest first: each signs
    scheduled_us: int
    send_at_us: int
    timeout_us: int
    attempt: int  # from 1
    token: int
    trigger: Trigger
    idempotency_key: str


class Route(Struct, frozen=True, eq=False, kw_only=True, weakref=True):
    """Where the callbacks of one target go: one object for each tenant and target.

    Callbacks of one route may share a request, at most `batch` of them.
    """

    tenant_id: UUID
    target: Target
    origin: str  # scheme, host and port: what has a bound and a breaker


class Prepared(Struct, frozen=True, kw_only=True, gc=False):
    """A callback that is encoded and signed, and waits for its time.

    What is sent long after its time is signed again, and a batch when its runs are known: for
    that it keeps its secrets.
    """

    run_id: str
    idempotency_key: str
    token: int
    send_at_us: int
    timeout_us: int
    secrets: tuple[str, ...]
    content: bytes  # what is sent; on a route with batches, one element of the array


class Dispatcher(Protocol):
    """Carries callbacks to workers: the *arm* stage prepares, the *fire* stage sends."""

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        """Calls none of these from now on: there the shards show how they are doing."""

    def route(self, tenant_id: UUID, target: Target) -> Route:
        """The route of a target: the same object as long as anybody holds it.

        A target that cannot be used has one too; what is sent there is rejected.
        """

    def prepare(self, route: Route, callback: Callback) -> Prepared:
        """Does ahead of time whatever can be done ahead of time."""

    def send(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> asyncio.Future[list[Outcome] | None]:
        """Sends a batch, one request: at once if it can, else as soon as there is a connection.

        Promises the outcome of each of its callbacks, in order, by the longest timeout of the
        batch. Every failure is an outcome. Asks `begin` at the moment that the request goes to the
        socket; nothing is sent if it says no, and nothing given. Whoever cancels the promise does
        not want to hear of it any more, and holds nothing up with it.
        """
