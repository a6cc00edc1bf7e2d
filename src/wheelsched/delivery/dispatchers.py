"""Picks the dispatcher of a target by its type.

Invariant: a route is used only with the dispatcher that made it. A route of a queue has a room.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from wheelsched.core.model import HttpTarget, Target
from wheelsched.core.targets.egress import OwnListener
from wheelsched.ports import Callback, Dispatcher, Prepared, Route, RunOwner, Sending
from wheelsched.ports.work import Attempted


class Dispatchers:
    """A `Dispatcher` for all targets: `http` sends callbacks, `queues` hands runs to workers."""

    def __init__(self, http: Dispatcher, queues: Dispatcher) -> None:
        self._http = http
        self._queues = queues

    def serve(self, owner: RunOwner | None) -> None:
        self._http.serve(owner)
        self._queues.serve(owner)

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        self._http.avoid(listeners)

    def route(self, tenant_id: UUID, target: Target) -> Route:
        of_type = self._http if isinstance(target, HttpTarget) else self._queues
        return of_type.route(tenant_id, target)

    def prepare(self, route: Route, callback: Callback) -> Prepared:
        return (self._http if route.room is None else self._queues).prepare(route, callback)

    def send(self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]) -> Sending:
        return (self._http if route.room is None else self._queues).send(route, batch, begin)

    def cancel(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> None:
        self._queues.cancel(tenant_id, attempts)
