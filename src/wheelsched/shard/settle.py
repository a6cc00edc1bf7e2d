"""Stage *settle*: reports are written back, in batches.

Invariant: what was decided about a report is decided once, and written however often the store has
to be asked. What follows from a report follows after it was written: a run that ended makes
room for the next, one that failed waits for its retry, one that was accepted is watched.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
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
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000
LINGER_NS = 20_000_000  # how long the first report of a batch waits for others
FINISH_EVERY_US = SECOND  # between two statements that end jobs, unless a batch is full


class Sequels(Struct, frozen=True):
    """What follows after a report was written."""

    ended: Callable[[RunKey], None]
    accepted: Callable[[ArmedRun], None]


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
        self._arrived = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: set[UUID] = set()  # jobs without a further due time, and with a run
        self._over: list[UUID] = []  # jobs without either
        self._gone: dict[UUID, int] = {}  # jobs to pause, with the version that was sent
        self._finished_us = 0

    def put(self, report: Report | Ruling) -> None:
        """Takes a report, to be written soon."""
        self._reports.append(report)
        self._is_idle.clear()
        self._arrived.set()

    def finish_later(self, job_id: UUID) -> None:
        """Ends a job when its last run has ended; it has no further due time."""
        if self._context.unfinished.has_any(job_id):
            self._ending.add(job_id)
        else:
            self._over.append(job_id)
            self._arrived.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        while True:
            await self._arrived.wait()
            if len(self._reports) < BATCH:
                await self._context.clock.sleep(LINGER_NS)
            if self._reports:
                await self._write(self._take())
            if not self._reports:
                self._is_idle.set()
                await self._finish()
            if not self._reports and not self._over:
                self._arrived.clear()

    async def drained(self) -> None:
        """Returns when everything that was put is written."""
        await self._is_idle.wait()

    async def carry(self, runs: Sequence[ArmedRun]) -> None:
        """Writes that this shard brings these runs to their end, whoever owns their partition."""
        settled = [Settled(key=run.key, token=run.token, state=RunState.RUNNING) for run in runs]
        for start in range(0, len(settled), BATCH):
            part = settled[start : start + BATCH]
            await self._insist(part)

    async def _finish(self) -> None:
        """Ends jobs that are over. Reports go first: nobody waits for this."""
        now_us = self._context.tenure.now_us()
        is_due = now_us - self._finished_us >= FINISH_EVERY_US or len(self._over) >= BATCH
        if self._over and is_due:
            self._finished_us = now_us
            over, self._over = self._over[:BATCH], self._over[BATCH:]
            await self._context.patience.insist_leased(
                "job.finish", lambda lease: self._context.stores.timers.finish(lease, over)
            )

    def _end(self, key: RunKey) -> None:
        """A run has ended, and perhaps its job with it."""
        self._sequels.ended(key)
        if key.job_id in self._ending and not self._context.unfinished.has_any(key.job_id):
            self._ending.discard(key.job_id)
            self._over.append(key.job_id)

    def _take(self) -> list[Report | Ruling]:
        """A batch, with no run twice: two reports of one are written one after the other."""
        taken: dict[RunKey, Report | Ruling] = {}
        while self._reports and len(taken) < BATCH and self._reports[0].key not in taken:
            report = self._reports.popleft()
            taken[report.key] = report
        return list(taken.values())

    async def _write(self, reports: Sequence[Report | Ruling]) -> None:
        context = self._context
        settled = [self._decide(report) for report in reports]
        started_us = context.tenure.now_us()
        stale, refused = await self._insist(settled)
        context.vitals.store.settles.observe(context.tenure.now_us() - started_us, len(settled))
        for report, written in zip(reports, settled, strict=True):
            if written.key in refused:
                continue  # it stays live here: sending it again would be refused again
            if written.key in stale:
                context.vitals.runs.stale_outcomes += 1
                log.info("outcome.stale", **about_run(written.key, written.token))
                self._end(written.key)
            else:
                self._count(written)
                self._follow(report, written)
        await self._pause_gone()

    async def _insist(self, settled: Sequence[Settled]) -> InParts[RunKey]:
        return await self._context.patience.insist_in_parts(
            "run.settle", settled, self._settle_part
        )

    async def _settle_part(self, settled: Sequence[Settled]) -> set[RunKey]:
        runs = self._context.stores.runs
        return await self._context.patience.insist(
            "run.settle", lambda: runs.settle(settled), even_if_refused=False
        )

    def _decide(self, report: Report | Ruling) -> Settled:
        now_us = self._context.clock.now_us()
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
            self._gone[run.key.job_id] = run.version
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
            self._end(report.key)
        elif not context.tenure.holds(partition_of(report.key.job_id)):
            context.unfinished.end(report.key)  # carried here; its next attempt is its owner's
        elif written.retry_at_us is not None:
            context.unfinished.pause(report.key)
            self._retries.put(Retry(report.key, written.retry_at_us))
        else:
            context.unfinished.pause(report.key)
            self._sequels.accepted(report.run)

    async def _pause_gone(self) -> None:
        """Pauses the jobs whose worker wants no more of them."""
        gone, self._gone = self._gone, {}
        if gone:
            await self._context.patience.insist_leased(
                "job.pause", lambda lease: self._context.stores.timers.pause_gone(lease, gone)
            )
