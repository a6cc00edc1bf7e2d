"""What workers that pull report about runs: outcomes, runs that they give back, credits.

Invariant: an outcome is a result of a run that is handed out under its token; a receipt says
"written" only after it was written. A run that no worker takes in time ends as dead.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final
from uuid import UUID

import structlog

from wheelsched.core.model import RunKey
from wheelsched.core.outcome import Outcome
from wheelsched.logs import about_run
from wheelsched.ports import Dispatcher, Room
from wheelsched.ports.work import DELIVERY_LEASE_US, Attempted, Receipt, Waiting
from wheelsched.shard.context import Context
from wheelsched.shard.firing.queue_depths import QueueDepths
from wheelsched.shard.firing.send import Sender
from wheelsched.shard.queues import Queues
from wheelsched.shard.runs.armed_run import OUTDATED, ArmedRun, Batch, Wait
from wheelsched.shard.runs.phase import Phase
from wheelsched.shard.settling.results import Report
from wheelsched.values.duration import format_duration

log = structlog.get_logger("wheelsched.shard")

NOT_CLAIMED: Final = "no worker claimed the run within {}"


class HandOuts:
    """The `RunOwner` of one lease."""

    def __init__(
        self, context: Context, dispatcher: Dispatcher, queues: Queues, sender: Sender
    ) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._queues = queues
        self._sender = sender
        self._depths = QueueDepths(queues.outgoing, queues.parked)
        self._unwritten: set[asyncio.Future[set[RunKey] | None]] = set()
        self._returned_us: dict[Attempted, int] = {}  # when they were given back
        self._has_returned = asyncio.Event()

    async def run(self) -> None:
        """Serves workers until it is cancelled."""
        self._dispatcher.serve(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_looking())
                tasks.create_task(self._take_recalled())
                tasks.create_task(self._take_returned())
        finally:
            self._dispatcher.serve(None)
            for receipt in tuple(self._unwritten):
                if not receipt.done():
                    receipt.set_result(None)

    def room_changed(self, room: Room) -> None:
        self._queues.parked.credits_changed(room, self._context.ownership.now_us())
        self._queues.outgoing.rooms.changed(room)
        if room.credits:
            self._sender.start_soon()

    def lease_end_us(self) -> int:
        return self._context.clock.now_us() + DELIVERY_LEASE_US

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        receipts: list[Receipt] = []
        alike: dict[tuple[Outcome, int, int | None, bool], list[ArmedRun]] = {}
        for attempt, outcome in outcomes:
            run = self._take(attempt)
            if isinstance(run, Receipt):
                receipts.append(run)
            else:
                receipts.append(Receipt.WRITTEN)
                kind = (outcome, run.fire_at_us, run.started_us, run.is_first)
                alike.setdefault(kind, []).append(run)
        reports = [self._report(runs, kind[0]) for kind, runs in alike.items()]
        unwritten: dict[RunKey, Receipt] = {}
        for report, receipt in reports:
            stale = await asyncio.shield(receipt)
            if stale is None:
                unwritten |= dict.fromkeys(report.keys, Receipt.UNKNOWN)
            else:
                unwritten |= dict.fromkeys(stale, Receipt.STALE)
        if not unwritten:
            return receipts
        return [
            unwritten.get(attempt.key, receipt) if receipt is Receipt.WRITTEN else receipt
            for (attempt, _), receipt in zip(outcomes, receipts, strict=True)
        ]

    def _report(
        self, runs: Sequence[ArmedRun], outcome: Outcome
    ) -> tuple[Report, asyncio.Future[set[RunKey] | None]]:
        """Puts a report, and returns it with its receipt."""
        for run in runs:
            run.enter(Phase.SETTLING)
        receipt: asyncio.Future[set[RunKey] | None] = asyncio.get_running_loop().create_future()
        self._unwritten.add(receipt)
        receipt.add_done_callback(self._unwritten.discard)
        report = Report(
            runs=runs,
            outcome=outcome,
            finished_us=self._context.clock.now_us(),
            receipt=receipt,
        )
        self._queues.results.put(report)
        return report, receipt

    def _take(self, attempt: Attempted) -> ArmedRun | Receipt:
        """The run of an attempt that is handed out, which is then no longer watched."""
        run = self._queues.handed_out.take(attempt)
        if run is None:
            is_stale = self._context.registry.has_later(attempt.key, attempt.token)
            return Receipt.STALE if is_stale else Receipt.UNKNOWN
        return run if run.phase is Phase.SENT else Receipt.STALE

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        given: dict[Hashable, Batch] = {}
        now_us = self._context.clock.now_us()
        for attempt in attempts:
            run = self._queues.handed_out.take(attempt)
            if run is None or run.phase is not Phase.SENT:
                continue
            self._returned_us[attempt] = now_us
            run.started_us = None
            run.claim_by_us = 0  # it waits anew
            run.enter(Phase.ADMITTED)
            if run.version == OUTDATED:
                run.enter(Phase.SUSPENDED)
                self._queues.doubtful.put(run)
                continue
            kind = (run.route, run.lane, run.priority, run.fire_at_us, run.is_first)
            batch = given.get(kind)
            if batch is None:
                batch = given[kind] = Batch(
                    run.route,
                    run.lane,
                    run.priority,
                    run.fire_at_us,
                    [],
                    wait=self._wait_again(run),
                )
            batch.runs.append(run)
        for batch in reversed(given.values()):
            self._queues.outgoing.put_back(batch)
        self._has_returned.set()
        self._sender.start_soon()

    def _wait_again(self, run: ArmedRun) -> Wait:
        """The new wait of a run that was given back, which is read again if hints are missing."""
        return Wait(self._context.ownership.now_us() + run.route.claim_within_us, 0)

    def waiting(self, tenant_id: UUID) -> list[Waiting]:
        return self._depths.of_tenant(tenant_id)

    async def _take_recalled(self) -> None:
        """Tells workers to stop the runs that were cancelled or withdrawn."""
        while True:
            recalled = await self._context.registry.recalled.take()
            by_tenant: dict[UUID, list[Attempted]] = defaultdict(list)
            for run in self._queues.handed_out.discard(recalled):
                by_tenant[run.route.tenant_id].append(Attempted(run.key, run.token))
            for tenant_id, attempts in by_tenant.items():
                self._dispatcher.cancel(tenant_id, attempts)

    async def _take_returned(self) -> None:
        """Forgets the heartbeats of workers that have given back their runs. The next worker, or
        the next owner, would take them for signs of life of the worker that has the run then."""
        while True:
            await self._has_returned.wait()
            self._has_returned.clear()
            returned, self._returned_us = self._returned_us, {}
            if returned:
                await self._context.store.forget_heartbeats(returned)

    async def _keep_looking(self) -> None:
        config, parked = self._context.config.queue, self._queues.parked
        while True:
            pause_us = config.return_us if parked.has_credits else config.look_us
            await self._context.machine.sleep(pause_us * 1_000)
            self._look(self._context.ownership.now_us())
            runs = self._context.vitals.runs
            runs.handed_out = len(self._queues.handed_out)
            runs.queues = self._depths.longest(config.shown, self._context.clock.now_us())

    def _look(self, now_us: int) -> None:
        """Ends the runs that have waited too long, and brings parked runs back."""
        rooms, parked = self._queues.outgoing.rooms, self._queues.parked
        self._sender.release_held()
        for room in tuple(rooms.known):
            if room.withdrawn:
                rooms.drop_withdrawn(room, _strip, now_us)
        expired = [run for batch in rooms.take_expired(now_us) for run in batch.runs]
        for run in (*expired, *parked.take_expired(now_us)):
            if run.phase is not Phase.WITHDRAWN:
                log.warning("run.unclaimed", **about_run(run.key, run.token))
                within = format_duration(run.route.claim_within_us)
                self._sender.end_unclaimed(run, NOT_CLAIMED.format(within))
        parked.count_waiting(rooms.runs_by_tenant())
        for run in parked.take_next():
            self._queues.doubtful.put(run)
        parked.forget_idle(rooms.known, now_us)


def _strip(batch: Batch) -> int:
    """Removes the runs of a batch that were withdrawn."""
    kept = [run for run in batch.runs if run.phase is not Phase.WITHDRAWN]
    stripped = len(batch.runs) - len(kept)
    batch.runs = kept
    return stripped
