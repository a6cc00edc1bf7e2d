"""Mutants of queues: traps that others fell into, and promises about leases and credits."""

import asyncio
from collections.abc import Iterator, Sequence
from unittest.mock import patch
from uuid import UUID

from tests.sim.mutants import mutant
from tests.sim.simulation import Simulation

from wheelsched.core.outcome import Outcome, TransportFailure
from wheelsched.delivery.link.desk import LinkDesk
from wheelsched.delivery.queue.credits import Credits
from wheelsched.delivery.queue.desk import QueueDesk
from wheelsched.delivery.queue.dispatcher import QueueDispatcher
from wheelsched.delivery.queue.distributor import Distributor
from wheelsched.delivery.queue.lines import Line, Lines
from wheelsched.delivery.queue.reports import StoredReports
from wheelsched.delivery.queue.workers import Borrower, Worker, Workers
from wheelsched.fairness.rooms import Rooms
from wheelsched.ports import Caller, Settled
from wheelsched.ports.work import Attempted, Held, QueueRun, Receipt, WorkerOutcome
from wheelsched.shard.firing.hand_outs import HandOuts
from wheelsched.shard.recovery.adopt import Adopt
from wheelsched.shard.recovery.external_runs import ExternalRuns, Watched
from wheelsched.shard.runs.handed_out import HandedOutRuns
from wheelsched.testing.history import MemoryHistory

SOON_S = 2.0


@mutant(
    "handed_out_early",
    "token_reused",
    faults=("join",),
    queues=6,
    queue_faults=("cut_links",) * 4,
)
def handed_out_again_when_a_link_is_lost(_: Simulation) -> Iterator[None]:
    """What was handed out is taken back at once, although its worker may have it."""
    close = QueueDesk.close

    def close_and_take_back(self: QueueDesk) -> None:
        owner = self._owner()
        if isinstance(owner, HandOuts) and not self._is_closed:
            runs = [run for run, _ in owner._queues.handed_out._runs.values()]
            owner.give_back([Attempted(run.key, run.token) for run in runs])
        close(self)

    with patch.object(QueueDesk, "close", close_and_take_back):
        yield


@mutant("overloaded", faults=("join",), queues=6, queue_faults=("cut_links",) * 2)
def credits_that_are_not_used_up(_: Simulation) -> Iterator[None]:
    """A worker gets whatever comes, and the shards may send twice what it asked for."""
    lend = QueueDesk.lend

    def assign(self: Workers, runs: Sequence[QueueRun]) -> list[tuple[Worker, Sequence[QueueRun]]]:
        members = sorted(self.members, key=lambda worker: -worker.credits)[:1]
        return [(member, runs) for member in members]

    with (
        patch.object(QueueDesk, "lend", lambda self, pool, count: lend(self, pool, 3 * count)),
        patch.object(Workers, "assign", assign),
    ):
        yield


@mutant("starved", "stuck", faults=("join",), queues=6, queue_faults=("drain_worker",) * 2)
def recall_that_loses_credits(_: Simulation) -> Iterator[None]:
    """A shard gives up its credits, and they never come back to whoever has lent them."""
    with patch.object(LinkDesk, "_return", lambda *_: None):
        yield


@mutant("starved", faults=("join",), queues=6, queue_faults=("cut_links",))
def shard_that_does_not_say_that_runs_wait(_: Simulation) -> Iterator[None]:
    """Credits stay where they were lent first, whoever has work."""

    def wait(*_: object) -> None:
        return

    def keep_at_the_first(self: Credits, borrower: Borrower) -> None:
        self.borrowers[borrower] = None
        if len(self.borrowers) == 1:
            self.balance_soon(*self._pools.values())

    with patch.object(Credits, "wait", wait), patch.object(Credits, "add", keep_at_the_first):
        yield


@mutant("unwritten", faults=("crash",) * 4, queues=6, queue_faults=("lose_answers",), requests=2)
def finish_that_is_told_before_it_is_written(_: Simulation) -> Iterator[None]:
    report = HandOuts._report
    later: set[asyncio.Task[None]] = set()

    async def finish(
        self: HandOuts, outcomes: Sequence[tuple[Attempted, Outcome]]
    ) -> list[Receipt]:
        taken = [(self._take(attempt), outcome) for attempt, outcome in outcomes]

        async def write() -> None:
            await asyncio.sleep(SOON_S)
            for run, outcome in taken:
                if not isinstance(run, Receipt):
                    report(self, [run], outcome)

        task = asyncio.get_running_loop().create_task(write())
        later.add(task)
        task.add_done_callback(later.discard)
        return [run if isinstance(run, Receipt) else Receipt.WRITTEN for run, _ in taken]

    with patch.object(HandOuts, "finish", finish):
        yield


@mutant("attempt_wasted", faults=("join",), queues=6, queue_faults=("drain_worker",) * 3)
def give_back_that_is_forgotten(_: Simulation) -> Iterator[None]:
    with patch.object(HandOuts, "give_back", lambda *_: None):
        yield


@mutant("outwaited", faults=("join",), queues=8, queue_faults=("lose_workers",))
def claim_within_that_is_ignored(_: Simulation) -> Iterator[None]:
    with patch.object(Rooms, "take_expired", lambda *_: []):
        yield


@mutant("handed_out_early", faults=("crash",) * 4, queues=6, requests=2)
def delivery_lease_ignored_by_the_next_owner(_: Simulation) -> Iterator[None]:
    with patch.object(Adopt, "_may_be_handed_out", lambda *_: False):
        yield


@mutant("handed_out_early", faults=("join",), queues=6)
def heartbeats_that_nobody_reads(_: Simulation) -> Iterator[None]:
    """A worker loses each run that takes longer than the delivery lease."""

    def fail(self: ExternalRuns, watched: Watched, check: object) -> None:
        self._fail(watched, TransportFailure.HEARTBEAT_MISSED)

    with patch.object(ExternalRuns, "_check_heartbeat", fail):
        yield


@mutant("cross_tenant", faults=("join",), queues=6)
def queues_of_tenants_mixed_up(_: Simulation) -> Iterator[None]:
    """The queues of two tenants that have the same name are one."""
    get, first = Lines.get, UUID(int=3_000)

    def get_any(self: Lines, tenant_id: UUID, queue: str) -> Line:
        return get(self, first, queue)

    with patch.object(Lines, "get", get_any):
        yield


@mutant("stuck", "lost", faults=("join",), queues=6, queue_faults=("kill_worker",) * 4)
def dead_workers_that_nobody_misses(_: Simulation) -> Iterator[None]:
    """What was handed out and never answered stays so."""
    with patch.object(HandedOutRuns, "expired", lambda *_: []):
        yield


@mutant("uncancelled", faults=("join",), queues=8, requests=30)
def cancelled_runs_that_nobody_is_told_of(_: Simulation) -> Iterator[None]:
    async def hold_all(
        self: MemoryHistory,
        caller: Caller,
        attempts: Sequence[Attempted],
        leases_us: Sequence[int | None],
    ) -> list[Held]:
        await heartbeats(self, caller, attempts, leases_us)
        return [Held(is_held=True)] * len(attempts)

    heartbeats = MemoryHistory.heartbeats
    with (
        patch.object(MemoryHistory, "heartbeats", hold_all),
        patch.object(QueueDispatcher, "cancel", lambda *_: None),
    ):
        yield


@mutant("stale_write", "unwritten", faults=("join",), queues=6, queue_faults=("freeze_worker",) * 5)
def stale_outcome_that_counts(_: Simulation) -> Iterator[None]:
    """A worker that slept past its lease ends the attempt of another."""
    decide = StoredReports._decide

    def decide_for_anybody(
        self: StoredReports, reported: WorkerOutcome, found: dict[object, object]
    ) -> Settled | Receipt:
        live = found.get(reported.attempt.key)
        if live is not None:
            attempt = Attempted(reported.attempt.key, live.run.token)  # type: ignore[attr-defined]
            reported = WorkerOutcome(attempt=attempt, outcome=reported.outcome)
        return decide(self, reported, found)  # type: ignore[arg-type] # as it was given

    async def to_the_database(*_: object) -> None:
        """Leaves every outcome without an answer of its shard."""

    with (
        patch.object(StoredReports, "_decide", decide_for_anybody),
        patch.object(Distributor, "_finish_at", to_the_database),
    ):
        yield
