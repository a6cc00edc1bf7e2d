"""Brings the runs of all shards to the workers of this process, and their outcomes back.

Invariant: a worker never gets more runs than it asked for, and a run that no worker can take goes
back to its shard. An outcome goes to the shard that handed out the attempt; if that is unknown or
lost, it is written to the database.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from wheelsched.delivery.queue.credits import Credits
from wheelsched.delivery.queue.in_hand import InHand
from wheelsched.delivery.queue.reports import REASONS, Reports
from wheelsched.delivery.queue.workers import Borrower, CancelRuns, Take, Worker
from wheelsched.errors import LinkLost
from wheelsched.ports.clock import Clock
from wheelsched.ports.work import (
    Attempted,
    Desk,
    Desks,
    Held,
    Pool,
    QueueRun,
    QueueState,
    Receipt,
    Reported,
    Waiting,
    WorkerOutcome,
)

log = structlog.get_logger("wheelsched.queue")

TICK_NS: Final = 1_000_000_000
AGE_TICKS: Final = 30  # an attempt without a heartbeat is remembered for one to two of these
ANSWER_S: Final = 1.0  # of a shard that is asked what waits
FINISH_S: Final = 10.0  # of a shard that writes outcomes


class Holding(NamedTuple):
    """Who handed out an attempt, and who has it."""

    borrower: Borrower
    worker: Worker

    @property
    def tenant_id(self) -> UUID:
        return self.worker.pool.pool.tenant_id


class Distributor:
    """`WorkSource` on the desks of all shards that are attached."""

    def __init__(self, reports: Reports, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock
        self._credits = Credits()
        self._in_hand: InHand[Holding] = InHand()

    @property
    def shards(self) -> int:
        """How many shards are attached."""
        return len(self._credits.borrowers)

    async def run(self) -> None:
        """Restores equal parts and forgets what is old, until it is cancelled."""
        ticks = 0
        while True:
            await self._clock.sleep(TICK_NS)
            ticks += 1
            if ticks % AGE_TICKS == 0:
                self._in_hand.age()
            self._credits.tick()

    def attach(self, desks: Desks) -> Callable[[], None]:
        """Lends credits to a shard, until the returned function is called."""
        receiver = _Receiver(self)
        receiver.borrower = Borrower(desks.open(receiver))
        self._credits.add(receiver.borrower)
        return lambda: self._credits.remove(receiver.borrower)

    def subscribe(
        self, tenant_id: UUID, queues: Sequence[str], take: Take, cancel: CancelRuns
    ) -> "WorkerSubscription":
        workers = self._credits.open(Pool(tenant_id, tuple(sorted(set(queues)))))
        worker = Worker(workers, take, cancel)
        workers.members.add(worker)
        return WorkerSubscription(self._credits, worker)

    # What workers report.

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        receipts = [Receipt.UNKNOWN] * len(outcomes)
        released = self._release(tenant_id, [reported.attempt for reported in outcomes])
        await asyncio.gather(
            *(
                self._finish_at(borrower.desk, places, outcomes, receipts)
                for borrower, places in released.items()
            )
        )
        answers = [REASONS[receipt] for receipt in receipts]
        if Receipt.UNKNOWN in receipts:
            rest = [place for place, each in enumerate(receipts) if each is Receipt.UNKNOWN]
            finished = await self._reports.finish(tenant_id, [outcomes[place] for place in rest])
            for place, answer in zip(rest, finished, strict=True):
                answers[place] = answer
        return answers

    async def _finish_at(
        self,
        desk: Desk,
        places: Sequence[int],
        outcomes: Sequence[WorkerOutcome],
        receipts: list[Receipt],
    ) -> None:
        """Reports outcomes to a shard, and notes its receipts. Without an answer they stay."""
        ended = [(outcomes[place].attempt, outcomes[place].outcome) for place in places]
        try:
            async with asyncio.timeout(FINISH_S):
                found = await desk.finish(ended)
        except (LinkLost, TimeoutError):
            return
        for place, receipt in zip(places, found, strict=True):
            receipts[place] = receipt

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        for attempt in attempts:
            self._in_hand.keep(attempt)
        return await self._reports.heartbeat(tenant_id, attempts, leases_us)

    def give_back(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> set[Attempted]:
        given: set[Attempted] = set()
        for borrower, places in self._release(tenant_id, attempts).items():
            those = [attempts[place] for place in places]
            borrower.desk.give_back(those)
            given.update(those)
        return given

    def _release(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> dict[Borrower, list[int]]:
        """Forgets who has these attempts. Returns the shards that handed them out, with their
        places in the list; without those that are not of this tenant, or whose shard is lost."""
        by_holding: dict[int, tuple[Holding, list[int]]] = {}  # those of one message share a few
        for place, attempt in enumerate(attempts):
            holding = self._in_hand.pop(attempt)
            if holding is not None:
                by_holding.setdefault(id(holding), (holding, []))[1].append(place)
        by_borrower: dict[Borrower, list[int]] = {}
        for holding, places in by_holding.values():
            if holding.tenant_id != tenant_id:
                for place in places:
                    self._in_hand.add(attempts[place], holding)
            elif holding.borrower.is_open:
                by_borrower.setdefault(holding.borrower, []).extend(places)
        return by_borrower

    async def queues(self, tenant_id: UUID) -> list[QueueState]:
        found = await asyncio.gather(
            *(_waiting_at(borrower.desk, tenant_id) for borrower in self._credits.borrowers)
        )
        depths, members, spare = Counter[str](), Counter[str](), Counter[str]()
        oldest: dict[str, int] = {}
        for waiting in (waiting for answer in found for waiting in answer):
            depths[waiting.queue] += waiting.count
            if waiting.oldest_us is not None:
                known_us = oldest.get(waiting.queue, waiting.oldest_us)
                oldest[waiting.queue] = min(known_us, waiting.oldest_us)
        for workers in self._credits.pools(tenant_id):
            for queue in workers.pool.queues if workers.members else ():
                members[queue] += len(workers.members)
                spare[queue] += workers.total
        return [
            QueueState(
                queue=queue,
                depth=depths[queue],
                oldest_us=oldest.get(queue),
                workers=members[queue],
                credits=spare[queue],
            )
            for queue in sorted({*depths, *members})
        ]

    # What shards send.

    def hand_out(
        self, borrower: Borrower, pool: Pool, runs: Sequence[QueueRun], until_us: int
    ) -> None:
        self._credits.use(borrower, pool, len(runs))
        workers = self._credits.find(pool)
        given = 0
        for worker, part in () if workers is None else workers.assign(runs):
            self._give(Holding(borrower, worker), part, until_us)
            given += len(part)
        if given < len(runs):
            borrower.desk.give_back([run.attempt for run in runs[given:]])

    def wait(self, borrower: Borrower, tenant_id: UUID, queue: str, count: int) -> None:
        self._credits.wait(borrower, tenant_id, queue, count)

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        by_worker: dict[Worker, list[Attempted]] = {}
        for attempt in attempts:
            if (holding := self._in_hand.find(attempt)) is not None:
                by_worker.setdefault(holding.worker, []).append(attempt)
        for worker, cancelled in by_worker.items():
            try:
                worker.cancel(cancelled)
            except Exception:
                log.exception("worker.failed")

    def _give(self, holding: Holding, runs: Sequence[QueueRun], until_us: int) -> None:
        for run in runs:
            self._in_hand.add(run.attempt, holding)
        try:
            holding.worker.take(runs, until_us)
        except Exception:
            log.exception("worker.failed")
            self.give_back(holding.tenant_id, [run.attempt for run in runs])


class _Receiver:
    """The distributor as one shard sees it."""

    borrower: Borrower

    def __init__(self, distributor: Distributor) -> None:
        self._distributor = distributor

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        self._distributor.hand_out(self.borrower, pool, runs, until_us)

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        self._distributor.cancel(attempts)

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        self._distributor.wait(self.borrower, tenant_id, queue, count)


class WorkerSubscription:
    """`Subscription` of one worker."""

    def __init__(self, lent: Credits, worker: Worker) -> None:
        self._credits = lent
        self._worker = worker

    def add_credits(self, count: int) -> None:
        self._worker.pool.add_credits(self._worker, count)
        self._credits.balance_soon(self._worker.pool)

    async def withdraw(self) -> None:
        workers = self._worker.pool
        workers.leave(self._worker)
        try:
            if self._worker.credits:
                await self._credits.until_returned(workers)
        finally:
            workers.remove(self._worker)


async def _waiting_at(desk: Desk, tenant_id: UUID) -> list[Waiting]:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await desk.waiting(tenant_id)
    except (LinkLost, TimeoutError):
        return []
