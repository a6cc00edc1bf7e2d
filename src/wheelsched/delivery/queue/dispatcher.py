"""The dispatcher of queues: hands runs to the desks of processes with workers that pull.

Invariant: a run is handed out only for a credit that a desk was lent for its tenant and its queue,
and only if `begin` agrees at that moment. `prepare` encodes what the worker receives, so that a
hand-out copies nothing.

Desks outlive the lease of the shard. While no shard is served, nothing is handed out.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, Struct

from wheelsched.closing import Closing
from wheelsched.core.model import QueueTarget, Target, Trigger, format_run_id
from wheelsched.core.outcome import HANDED_OUT, HandedOut
from wheelsched.core.targets.egress import OwnListener
from wheelsched.delivery.queue.desk import QueueDesk
from wheelsched.delivery.queue.lines import Line, Lines
from wheelsched.ports import Callback, Clock, Prepared, Room, Route, RunOwner
from wheelsched.ports.work import Attempted, QueueRun, Receiver
from wheelsched.values.duration import MILLISECOND
from wheelsched.wire.callback import write_instant

BATCH: Final = 500  # the most runs of one hand-out
TELL_NS: Final = 100_000_000  # between two notices of how many runs of a queue wait


class QueueRoute(Route, frozen=True, eq=False, kw_only=True):
    """The route of a queue. Its line is its room."""

    line: Line


class PreparedRun(Prepared, frozen=True, kw_only=True, gc=False):
    """A run that is encoded for its worker."""

    run: QueueRun


class Claimed(Struct, frozen=True, kw_only=True):
    """A run in the answer to a claim, without the end of its lease."""

    run_id: str
    job_id: UUID
    job_name: str
    queue: str
    scheduled_at: str
    attempt: int
    fencing_token: int
    idempotency_key: str
    trigger: Trigger
    timeout_ms: int
    payload: Raw


_encode = msgspec.json.Encoder().encode


class QueueDispatcher(Closing):
    """A `Dispatcher` for targets that are queues; `Desks` for the processes with workers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owner: RunOwner | None = None
        self._desks: dict[QueueDesk, None] = {}
        self._lines = Lines(self._credits_changed, self._waiting_changed)
        self._routes: WeakValueDictionary[tuple[UUID, QueueTarget], QueueRoute]
        self._routes = WeakValueDictionary()
        self._untold: dict[Line, None] = {}  # lines whose receivers know another number
        self._told_ns = 0
        self._is_telling = False  # in the next iteration of the loop
        self._alarm = clock.alarm(self._tell)

    def open(self, receiver: Receiver) -> QueueDesk:
        """A new desk for a process."""
        desk = QueueDesk(receiver, self._lines, lambda: self._owner, self._desks.pop)
        self._desks[desk] = None
        return desk

    async def close(self) -> None:
        """Closes all desks."""
        for desk in tuple(self._desks):
            desk.close()
        self._alarm.close()

    def serve(self, owner: RunOwner | None) -> None:
        self._owner = owner
        for line in self._lines.all():
            line.waiting = line.late = line.withdrawn = 0  # of the previous lease
            line.is_held = False
            line.waiting_changed()

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        """Do nothing, because workers connect themselves."""

    def route(self, tenant_id: UUID, target: Target) -> QueueRoute:
        assert isinstance(target, QueueTarget)
        route = self._routes.get((tenant_id, target))
        if route is None:
            line = self._lines.get(tenant_id, target.queue)
            route = self._routes[tenant_id, target] = QueueRoute(
                tenant_id=tenant_id,
                target=target,
                batch=BATCH,
                # The runs of an origin expire in order, so it has one limit of the wait.
                origin=f"queue {target.queue} within {target.claim_within_us}",
                room=line,
                claim_within_us=target.claim_within_us,
                line=line,
            )
        return route

    def prepare(self, route: Route, callback: Callback) -> PreparedRun:
        assert isinstance(route, QueueRoute)
        run_id = format_run_id(callback.key)
        claimed = Claimed(
            run_id=run_id,
            job_id=callback.key.job_id,
            job_name=callback.job_name,
            queue=route.line.queue,
            scheduled_at=write_instant(callback.scheduled_us),
            attempt=callback.attempt,
            fencing_token=callback.token,
            idempotency_key=callback.idempotency_key,
            trigger=callback.trigger,
            timeout_ms=callback.timeout_us // MILLISECOND,
            payload=Raw(callback.payload),
        )
        content = _encode(claimed)[:-1]
        return PreparedRun(
            run_id=run_id,
            idempotency_key=callback.idempotency_key,
            token=callback.token,
            send_at_us=callback.send_at_us,
            timeout_us=callback.timeout_us,
            secrets=(),
            content=content,
            run=QueueRun(
                attempt=Attempted(callback.key, callback.token),
                queue=route.line.queue,
                content=content,
            ),
        )

    def send(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> asyncio.Future[HandedOut | None]:
        assert isinstance(route, QueueRoute)
        promise: asyncio.Future[HandedOut | None] = asyncio.get_running_loop().create_future()
        owner = self._owner
        if owner is None or len(batch) > route.line.credits or not begin():
            promise.set_result(None)
            return promise
        runs = [each.run for each in batch if isinstance(each, PreparedRun)]
        route.line.hand_out(runs, owner.lease_end_us())
        promise.set_result(HANDED_OUT)
        return promise

    def cancel(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> None:
        for desk in self._desks:
            if tenant_id in desk.tenants:
                desk.receiver.cancel(attempts)

    def _credits_changed(self, line: Room) -> None:
        if self._owner is not None:
            self._owner.room_changed(line)

    def _waiting_changed(self, line: Line) -> None:
        """Tells the receivers in the next iteration of the loop whether runs wait, and how many
        every `TELL_NS`."""
        is_first = not self._untold
        self._untold[line] = None
        if not self._is_telling and (not line.told or not line.without_credit):
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)
        elif is_first:
            self._alarm.set(self._told_ns + TELL_NS)

    def _tell(self) -> None:
        self._is_telling = False
        self._told_ns = self._clock.now_ns()
        untold, self._untold = self._untold, {}
        for line in untold:
            count = line.without_credit
            if count != line.told:
                line.told = count
                for receiver in dict.fromkeys(pool.receiver for pool in line.pools):
                    receiver.wait(line.tenant_id, line.queue, count)
