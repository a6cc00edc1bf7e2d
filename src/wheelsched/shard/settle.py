"""Stage *settle*: reports are written back, in batches.

Invariant: what was decided about a report is decided once, and written however often the store has
to be asked. What follows from a report follows after it was written: a run that ended makes
room for the next, one that failed waits for its retry, one that was accepted is watched. Two
reports of one run are written one after the other, in the order in which they came.

Nobody waits for a write as for a dispatch: while runs that are due are still on their way to the
socket, reports wait, for a while.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core import settlement
from wheelsched.core.duration import SECOND
from wheelsched.core.model import FINAL_STATES, RunKey, RunState
from wheelsched.core.outcome import told
from wheelsched.core.partition import partition_of
from wheelsched.core.state import JobEvent, move_run
from wheelsched.logs import about_run
from wheelsched.ports import Retry, Settled
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.patience import InParts
from wheelsched.shard.portions import in_portions
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000
AT_ONCE = 2  # batches being written: the database writes one while another is made or followed
LINGER_NS = 20_000_000  # how long the first report of a batch waits for others
TURN = 100  # reports followed up in one turn of the loop
MOST_LINGER_US = SECOND  # how long reports give way to runs that are due
FINISH_NS = 1_000_000_000  # how long a job that is over waits for others, unless a batch is full


class Sequels(Struct, frozen=True):
    """What follows after a report was written, and whether to wait with that."""

    ended: Callable[[RunKey, int], None]  # an attempt, and with it the run
    accepted: Callable[[ArmedRun], None]
    gives_way: Callable[[], bool]


class Settle:
    """Writes reports. Bounded by what may be in flight: a report is one of those."""

    def __init__(
        self, context: Context, retries: Retries, sequels: Sequels, random: Random
    ) -> None:
        self._context = context
        self._retries = retries
        self._sequels = sequels
        self._random = random
        self._reports: deque[Report | Ruling] = deque()
        self._writes: set[asyncio.Task[None]] = set()  # under way
        self._writing: set[RunKey] = set()  # the runs in them
        self._arrived = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: set[UUID] = set()  # jobs without a further due time, and with a run
        self._over: deque[UUID] = deque()  # jobs without either
        self._is_over = asyncio.Event()

    def put(self, report: Report | Ruling) -> None:
        """Takes a report, to be written soon."""
        if isinstance(report, Ruling):
            self._context.unfinished.rule(report.key)
        self._reports.append(report)
        self._is_idle.clear()
        self._arrived.set()

    def finish_later(self, job_id: UUID) -> None:
        """Ends a job when its last run has ended; it has no further due time."""
        if self._context.unfinished.has_any(job_id):
            self._ending.add(job_id)
        else:
            self._over.append(job_id)
            self._is_over.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_finishing())
            while True:
                await self._arrived.wait()
                await self._linger()
                await self._write_some(tasks)
                if not self._reports:
                    self._is_idle.set()
                    self._arrived.clear()

    async def _linger(self) -> None:
        """Waits for company, and until what is due is on its way."""
        clock, tenure = self._context.clock, self._context.tenure
        if len(self._reports) < BATCH:
            await clock.sleep(LINGER_NS)
        until_us = tenure.now_us() + MOST_LINGER_US
        while self._sequels.gives_way() and tenure.now_us() < until_us:
            await clock.sleep(LINGER_NS)

    async def _write_some(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to write a batch; ends when all are written, or when there is work for another."""
        batch = self._take()
        if batch:
            write = tasks.create_task(self._write(batch))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        most = AT_ONCE if batch and len(self._reports) >= BATCH else 1
        while len(self._writes) >= most:
            await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)

    async def drained(self) -> None:
        """Returns when everything that was put is written."""
        await self._is_idle.wait()

    async def carry(self, runs: Sequence[ArmedRun]) -> None:
        """Writes that this shard brings these runs to their end, whoever owns their partition."""
        settled = [Settled(key=run.key, token=run.token, state=RunState.RUNNING) for run in runs]
        for start in range(0, len(settled), BATCH):
            part = settled[start : start + BATCH]
            await self._insist(part)

    async def _keep_finishing(self) -> None:
        """Ends jobs that are over. Reports go first: nobody waits for this."""
        clock = self._context.clock
        while True:
            await self._is_over.wait()
            await clock.sleep(FINISH_NS if len(self._over) < BATCH else LINGER_NS)
            if len(self._reports) >= BATCH:
                continue
            over = [self._over.popleft() for _ in range(min(BATCH, len(self._over)))]
            if not self._over:
                self._is_over.clear()
            await self._finish(over)

    async def _finish(self, job_ids: Sequence[UUID]) -> None:
        timers = self._context.stores.timers
        await self._context.patience.insist_leased(
            "job.finish", lambda lease: timers.finish(lease, job_ids)
        )

    def _end(self, key: RunKey, token: int) -> None:
        """A run has ended with this attempt, and perhaps its job with it."""
        self._sequels.ended(key, token)
        if key.job_id in self._ending and not self._context.unfinished.has_any(key.job_id):
            self._ending.discard(key.job_id)
            self._over.append(key.job_id)
            self._is_over.set()

    def _take(self) -> list[Report | Ruling]:
        """A batch of which no run is in it twice, or being written."""
        taken: dict[RunKey, Report | Ruling] = {}
        reports, writing = self._reports, self._writing
        while reports and len(taken) < BATCH:
            key = reports[0].key
            if key in taken or key in writing:
                break
            taken[key] = reports.popleft()
        return list(taken.values())

    async def _write(self, reports: Sequence[Report | Ruling]) -> None:
        keys = [report.key for report in reports]
        self._writing.update(keys)
        try:
            await self._write_batch(reports)
        finally:
            self._writing.difference_update(keys)

    async def _write_batch(self, reports: Sequence[Report | Ruling]) -> None:
        context = self._context
        now_us = context.clock.now_us()
        gone: dict[UUID, int] = {}  # jobs to pause, with the version that was sent
        settled = [self._decide(report, now_us, gone) for report in reports]
        started_us = context.tenure.now_us()
        answer = await self._insist(settled)
        stale, refused = set(answer.answers), {one.key for one in answer.refused}
        context.vitals.store.settles.observe(context.tenure.now_us() - started_us, len(settled))
        pairs = zip(reports, settled, strict=True)
        async for portion in in_portions(context.clock, pairs, TURN):
            for report, written in portion:
                self._written(report, written, stale=stale, refused=refused)
        await self._pause(gone)

    def _written(
        self,
        report: Report | Ruling,
        written: Settled,
        *,
        stale: set[RunKey],
        refused: set[RunKey],
    ) -> None:
        if isinstance(report, Ruling):
            self._context.unfinished.ruling_written(report.key)
        if written.key in refused:
            return  # it stays live here: sending it again would be refused again
        if written.key in stale:
            self._context.vitals.runs.stale_outcomes += 1
            log.info("outcome.stale", **about_run(written.key, written.token))
            if not self._context.unfinished.has_later(written.key, written.token):
                self._end(written.key, written.token)
        else:
            self._count(written)
            self._follow(report, written)

    async def _insist(self, settled: Sequence[Settled]) -> InParts[RunKey, Settled]:
        return await self._context.patience.insist_in_parts(
            "run.settle", settled, self._settle_part
        )

    async def _settle_part(self, settled: Sequence[Settled]) -> set[RunKey]:
        runs = self._context.stores.runs
        return await self._context.patience.insist(
            "run.settle", lambda: runs.settle(settled), even_if_refused=False
        )

    def _decide(self, report: Report | Ruling, now_us: int, gone: dict[UUID, int]) -> Settled:
        if isinstance(report, Ruling):
            return Settled(
                key=report.key,
                token=report.token,
                state=report.state,
                finished_at_us=now_us,
                skip_reason=report.skip_reason,
                error=report.error,
            )
        run = report.run
        decided = settlement.decide(
            run.rules.retry,
            report.outcome,
            attempt=run.attempt,
            now_us=now_us,
            random=self._random,
        )
        if decided.job_event is JobEvent.GONE:
            gone[run.key.job_id] = run.version
        http_status, error = told(report.outcome)
        return Settled(
            key=run.key,
            token=run.token,
            state=move_run(RunState.ARMED, decided.event),
            started_at_us=run.started_us,
            finished_at_us=report.finished_us,
            lateness_us=self._lateness_us(run),
            http_status=http_status,
            error=error,
            retry_at_us=decided.retry_at_us,
        )

    def _lateness_us(self, run: ArmedRun) -> int | None:
        """Of a first attempt: how long after its time it went to the socket."""
        if run.started_us is None or not run.is_first:
            return None
        lateness_us = max(run.started_us - run.fire_at_us, 0)
        self._context.vitals.runs.lateness.observe(lateness_us)
        return lateness_us

    def _count(self, written: Settled) -> None:
        runs = self._context.vitals.runs
        runs.entered[written.state] += 1
        runs.retries += written.state is RunState.RETRYING
        if written.skip_reason is not None:
            runs.skipped[written.skip_reason] += 1

    def _follow(self, report: Report | Ruling, written: Settled) -> None:
        context = self._context
        if isinstance(report, Ruling) or written.state in FINAL_STATES:
            self._end(written.key, written.token)
        elif not context.tenure.holds(partition_of(report.key.job_id)):
            context.unfinished.end(report.key, written.token)  # the next attempt is its owner's
        elif written.retry_at_us is not None:
            context.unfinished.pause(report.key)
            self._retries.put(Retry(report.key, written.retry_at_us))
        else:
            context.unfinished.pause(report.key)
            self._sequels.accepted(report.run)

    async def _pause(self, gone: Mapping[UUID, int]) -> None:
        """Pauses the jobs whose worker wants no more of them."""
        if gone:
            await self._context.patience.insist_leased(
                "job.pause", lambda lease: self._context.stores.timers.pause_gone(lease, gone)
            )
