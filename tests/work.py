"""Queues in memory: a `WorkSource` without shards, for tests of what workers speak.

It keeps time by hand: a test moves `now_us`, and `expire` ends the delivery leases that are over.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from wheelsched.core.model import RunKey, format_run_id
from wheelsched.core.outcome import Outcome
from wheelsched.ports.work import (
    DELIVERY_LEASE_US,
    Attempted,
    Held,
    QueueRun,
    QueueState,
    Reported,
    WorkerOutcome,
)
from wheelsched.wire.callback import write_instant

_numbers = itertools.count(1)


class MemoryRun(Struct, kw_only=True):
    """A run, and where it is."""

    tenant_id: UUID
    queue: str
    key: RunKey
    token: int
    attempt: int = 1
    name: str = "report"
    payload: object = None
    until_us: int | None = None  # the lease of the worker that has it
    outcome: Outcome | None = None
    is_cancelled: bool = False
    given_back: int = 0
    handed_out: int = 0

    @property
    def run_id(self) -> str:
        return format_run_id(self.key)

    def content(self) -> QueueRun:
        fields = {
            "run_id": self.run_id,
            "job_id": self.key.job_id,
            "job_name": self.name,
            "queue": self.queue,
            "scheduled_at": write_instant(self.key.due_us),
            "attempt": self.attempt,
            "fencing_token": self.token,
            "idempotency_key": f"{self.key.job_id}:{self.key.due_us}",
            "trigger": "schedule",
            "timeout_ms": 120_000,
            "payload": self.payload,
        }
        content = msgspec.json.encode(fields)[:-1]
        return QueueRun(attempt=Attempted(self.key, self.token), queue=self.queue, content=content)


class MemorySubscription:
    """A worker of `MemoryWork`."""

    def __init__(
        self,
        work: "MemoryWork",
        tenant_id: UUID,
        queues: Sequence[str],
        take: Callable[[Sequence[QueueRun], int], None],
        cancel: Callable[[Sequence[Attempted]], None],
    ) -> None:
        self.work = work
        self.tenant_id = tenant_id
        self.queues = tuple(queues)
        self.take = take
        self.cancel = cancel
        self.credits = 0

    def add_credits(self, count: int) -> None:
        self.credits += count
        self.work.hand_out()

    async def withdraw(self) -> None:
        self.credits = 0
        if self in self.work.subscriptions:
            self.work.subscriptions.remove(self)


class MemoryWork:
    """A `WorkSource` whose runs are added by a test."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.runs: dict[RunKey, MemoryRun] = {}
        self.waiting: deque[MemoryRun] = deque()
        self.subscriptions: list[MemorySubscription] = []
        self.leases: list[int | None] = []  # of the heartbeats
        self.heartbeats = 0  # calls
        self.is_paused = False

    def add(
        self, tenant_id: UUID, queue: str = "billing", count: int = 1, payload: object = None
    ) -> list[MemoryRun]:
        """Makes runs due."""
        added = [
            MemoryRun(
                tenant_id=tenant_id,
                queue=queue,
                key=RunKey(UUID(int=next(_numbers)), self.now_us()),
                token=next(_numbers),
                payload={"number": number} if payload is None else payload,
            )
            for number in range(count)
        ]
        for run in added:
            self.runs[run.key] = run
            self.waiting.append(run)
        self.hand_out()
        return added

    def hand_out(self) -> None:
        """Hands waiting runs to workers with credits, in turn."""
        if self.is_paused or not self.waiting:
            return
        for subscription in list(self.subscriptions):
            taken: list[MemoryRun] = []
            left: deque[MemoryRun] = deque()
            while self.waiting:
                run = self.waiting.popleft()
                is_theirs = run.tenant_id == subscription.tenant_id
                if is_theirs and run.queue in subscription.queues and subscription.credits:
                    subscription.credits -= 1
                    run.until_us = self.now_us() + DELIVERY_LEASE_US
                    run.handed_out += 1
                    taken.append(run)
                else:
                    left.append(run)
            self.waiting = left
            if taken:
                until_us = self.now_us() + DELIVERY_LEASE_US
                subscription.take([run.content() for run in taken], until_us)
                self.subscriptions.remove(subscription)
                self.subscriptions.append(subscription)

    def expire(self) -> None:
        """Hands out again what was handed to workers whose lease is over."""
        for run in self.runs.values():
            if run.until_us is not None and run.until_us <= self.now_us() and run.outcome is None:
                run.until_us = None
                run.token = next(_numbers)
                run.attempt += 1
                self.waiting.append(run)
        self.hand_out()

    def cancel(self, run: MemoryRun) -> None:
        """Cancels a run that a worker has."""
        run.is_cancelled = True
        for subscription in self.subscriptions:
            subscription.cancel([Attempted(run.key, run.token)])

    def subscribe(
        self,
        tenant_id: UUID,
        queues: Sequence[str],
        take: Callable[[Sequence[QueueRun], int], None],
        cancel: Callable[[Sequence[Attempted]], None],
    ) -> MemorySubscription:
        made = MemorySubscription(self, tenant_id, queues, take, cancel)
        self.subscriptions.append(made)
        return made

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        return [self._finish(tenant_id, each.attempt, each.outcome) for each in outcomes]

    def _finish(self, tenant_id: UUID, attempt: Attempted, outcome: Outcome) -> Reported:
        run = self.runs.get(attempt.key)
        if run is None or run.tenant_id != tenant_id:
            return Reported(is_accepted=False, reason="unknown run")
        if run.token != attempt.token:
            return Reported(is_accepted=False, reason="stale fencing token")
        if run.outcome is not None and run.outcome != outcome:
            return Reported(is_accepted=False, reason="the run has ended")
        run.outcome = outcome
        run.until_us = None
        return Reported(is_accepted=True)

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        self.heartbeats += 1
        self.leases += leases_us
        return [
            self._heartbeat(tenant_id, attempt, lease_us)
            for attempt, lease_us in zip(attempts, leases_us, strict=True)
        ]

    def _heartbeat(self, tenant_id: UUID, attempt: Attempted, lease_us: int | None) -> Held:
        run = self.runs.get(attempt.key)
        is_theirs = run is not None and run.tenant_id == tenant_id
        if run is None or not is_theirs or run.token != attempt.token or run.until_us is None:
            return Held(is_held=False)
        run.until_us = self.now_us() + (lease_us or 120_000_000)
        return Held(is_held=True, is_cancelled=run.is_cancelled)

    def give_back(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> set[Attempted]:
        returned = {attempt for attempt in attempts if self._give_back(tenant_id, attempt)}
        self.hand_out()
        return returned

    def _give_back(self, tenant_id: UUID, attempt: Attempted) -> bool:
        run = self.runs.get(attempt.key)
        if run is None or run.tenant_id != tenant_id or run.token != attempt.token:
            return False
        if run.outcome is not None:
            return False
        run.given_back += 1
        run.until_us = None
        self.waiting.append(run)
        return True

    async def queues(self, tenant_id: UUID) -> list[QueueState]:
        waiting = [run for run in self.waiting if run.tenant_id == tenant_id]
        workers = [each for each in self.subscriptions if each.tenant_id == tenant_id]
        names = {run.queue for run in waiting} | {name for one in workers for name in one.queues}
        return [
            QueueState(
                queue=name,
                depth=sum(run.queue == name for run in waiting),
                oldest_us=min((r.key.due_us for r in waiting if r.queue == name), default=None),
                workers=sum(name in worker.queues for worker in workers),
                credits=sum(worker.credits for worker in workers if name in worker.queues),
            )
            for name in sorted(names)
        ]
