"""Stage *settle*: reports are written back, in batches.

Invariant: what was decided about a report is decided once, and written however often the store has
to be asked. What follows from a report follows after it was written: a run that ended makes
room for the next, one that failed waits for its retry, one that was accepted is watched. Two
reports of one run are written one after the other, in the order in which they came.

Nobody waits for a write as for a dispatch: while runs that are due are still on their way to the
socket, reports wait, for a while. Those that a next run of the same job waits for do not, and go
first: by them `overlap` decides about it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter
from random import Random
from typing import NamedTuple
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core.duration import SECOND
from wheelsched.core.model import FINAL_STATES, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.logs import about_run
from wheelsched.ports import Ending, Retry, Settled
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.endings import end_attempts, end_ruled, gone_jobs
from wheelsched.shard.patience import InParts
from wheelsched.shard.portions import in_portions
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000  # runs; a request may bring some more
CROWD = 10 * BATCH
AT_ONCE = 2  # batches being written: the database writes one while another is made or followed
LINGER_NS = 20_000_000  # how long the first report of a batch waits for others
TURN = 100  # runs followed up in one turn of the loop, or those of one request
GIVE_WAY_US = 2 * SECOND  # how long reports let runs that are due go first, in one stretch
FINISH_NS = 1_000_000_000  # how long a job that is over waits for others, unless a batch is full


class Sequels(Struct, frozen=True):
    """What follows after a report was written, and whether to wait with that."""

    ended: Callable[[RunKey, int], None]  # an attempt, and with it the run
    accepted: Callable[[ArmedRun], None]
    reload: Callable[[UUID], None]  # a job of which a retry may have been asked for meanwhile
    gives_way: Callable[[], bool]


class Unwritten(NamedTuple):
    """Of a batch, the runs whose outcome was stale, and those of which the store keeps nothing."""

    stale: set[RunKey]
    refused: set[RunKey]


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
        self._awaited: deque[Report | Ruling] = deque()  # by a next run of the same job
        self._awaited_keys = Counter[RunKey]()  # the runs in those, and how often
        self._reported = 0  # the runs in both
        self._gives_way_until_us: int | None = None  # in a stretch of doing so
        self._writes: set[asyncio.Task[None]] = set()  # under way
        self._writing: set[RunKey] = set()  # the runs in them
        self._arrived = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: set[UUID] = set()  # jobs without a further due time, and with a run
        self._over: dict[UUID, None] = {}  # jobs without either, in the order of their ends
        self._is_over = asyncio.Event()

    def put(self, report: Report | Ruling) -> None:
        """Takes a report, to be written soon."""
        if isinstance(report, Ruling):
            report.decided_us = self._context.clock.now_us()
            self._context.unfinished.rule(report.key)
        if self._is_awaited(report):
            self._awaited.append(report)
            self._awaited_keys.update(report.keys)
        else:
            self._reports.append(report)
        self._reported += len(report)
        self._is_idle.clear()
        self._arrived.set()

    @property
    def is_crowded(self) -> bool:
        """Whether so many reports wait that whatever can wait had better do so."""
        return self._reported > CROWD

    def finish_later(self, job_id: UUID) -> None:
        """Ends a job when its last run has ended; it has no further due time."""
        if self._context.unfinished.has_any(job_id):
            self._ending.add(job_id)
        else:
            self._over[job_id] = None
            self._is_over.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_finishing())
            while True:
                await self._arrived.wait()
                await self._linger()
                await self._write_some(tasks)
                if not self._reported:
                    self._is_idle.set()
                    self._arrived.clear()

    async def _linger(self) -> None:
        """Waits for company, and until what is due is on its way."""
        clock = self._context.clock
        if self._reported < BATCH:
            await clock.sleep(LINGER_NS)
        while self._gives_way() and not self._awaited:
            await clock.sleep(LINGER_NS)

    def _gives_way(self) -> bool:
        """Whether reports that nobody waits for let runs that are due go first.

        A crowd that does not end is given way once, not before every batch.
        """
        if not self._sequels.gives_way():
            self._gives_way_until_us = None
            return False
        now_us = self._context.tenure.now_us()
        if self._gives_way_until_us is None:
            self._gives_way_until_us = now_us + GIVE_WAY_US
        return now_us < self._gives_way_until_us

    def _is_awaited(self, report: Report | Ruling) -> bool:
        """Whether a job in it has a next run that waits for its turn, or is due before long.

        Two of one run stand in the same line: what came first is written first.
        """
        if self._awaited_keys and not self._awaited_keys.keys().isdisjoint(report.keys):
            return True
        if isinstance(report, Ruling):
            return False
        unfinished = self._context.unfinished
        followed = [run for run in report.runs if run.is_followed]
        if followed or unfinished.has_waiting(report.runs):
            return not any(unfinished.is_ruled(run.key) for run in report.runs)
        return False

    async def _write_some(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to write a batch; ends when all are written, or when there is work for another."""
        batch, keys = self._take()
        if batch:
            self._writing |= keys  # from now on, not only when the task has its first turn
            write = tasks.create_task(self._write(batch, keys))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        most = AT_ONCE if batch and self._reported >= BATCH else 1
        while len(self._writes) >= most:
            await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)

    async def drained(self) -> None:
        """Returns when everything that was put is written."""
        await self._is_idle.wait()

    async def carry(self, runs: Sequence[ArmedRun]) -> None:
        """Writes that this shard brings these runs to their end, whoever owns their partition."""
        carried = Ending(state=RunState.RUNNING)
        settled = [Settled(run.key, run.token, carried) for run in runs]
        for start in range(0, len(settled), BATCH):
            part = settled[start : start + BATCH]
            await self._insist(part)

    async def _keep_finishing(self) -> None:
        """Ends jobs that are over. Reports go first: nobody waits for this."""
        clock = self._context.clock
        while True:
            await self._is_over.wait()
            await clock.sleep(FINISH_NS if len(self._over) < BATCH else LINGER_NS)
            if self._reported >= BATCH:
                continue
            over = list(islice(self._over, BATCH))
            await self._finish(over)
            for job_id in over:
                del self._over[job_id]
            if not self._over:
                self._is_over.clear()

    async def _finish(self, job_ids: Sequence[UUID]) -> None:
        timers = self._context.stores.timers
        await self._context.patience.insist_leased(
            "job.finish", lambda lease: timers.finish(lease, job_ids)
        )

    def _end(self, key: RunKey, token: int) -> None:
        """A run has ended with this attempt, and perhaps its job with it."""
        unfinished, job_id = self._context.unfinished, key.job_id
        if not unfinished.end_alone(key, token):
            self._sequels.ended(key, token)
        if job_id in self._ending and not unfinished.has_any(job_id):
            self._ending.remove(job_id)
            self._over[job_id] = None
            self._is_over.set()

    def _take(self) -> tuple[list[Report | Ruling], set[RunKey]]:
        """A batch of which no run is being written, or is in two reports; with its runs."""
        taken: list[Report | Ruling] = []
        taken_keys: set[RunKey] = set()
        for line, most in self._lines():
            while line and len(taken_keys) < most:
                keys = set(line[0].keys)  # each is hashed once
                if not (taken_keys.isdisjoint(keys) and self._writing.isdisjoint(keys)):
                    return taken, taken_keys
                report = line.popleft()
                taken.append(report)
                taken_keys |= keys
                self._reported -= len(report)
                if line is self._awaited:
                    self._forget_awaited(report.keys)
        return taken, taken_keys

    def _forget_awaited(self, keys: Sequence[RunKey]) -> None:
        for key in keys:
            self._awaited_keys[key] -= 1
            if not self._awaited_keys[key]:
                del self._awaited_keys[key]

    def _lines(self) -> list[tuple[deque[Report | Ruling], int]]:
        """What a batch is taken from, in this order, and how full each may make it.

        Those that nobody waits for give way to the others for a while, and never for good.
        """
        if self._awaited and self._gives_way():
            return [(self._awaited, BATCH)]
        share = BATCH // 2 if self._reports else BATCH
        return [(self._awaited, share), (self._reports, BATCH)]

    async def _write(self, reports: Sequence[Report | Ruling], keys: set[RunKey]) -> None:
        try:
            await self._write_batch(reports)
        finally:
            self._writing -= keys

    def _end_attempts(self, report: Report | Ruling, now_us: int) -> list[Settled]:
        if isinstance(report, Ruling):
            return [end_ruled(report)]
        if (lateness_us := report.lateness_us) is not None:
            self._context.vitals.runs.lateness.observe(lateness_us, len(report))
        return end_attempts(report, now_us, self._random)

    async def _write_batch(self, reports: Sequence[Report | Ruling]) -> None:
        context = self._context
        now_us = context.clock.now_us()
        parts: list[list[Settled]] = []
        async for portion in in_portions(context.clock, reports, TURN):
            parts += [self._end_attempts(report, now_us) for report in portion]
        settled = list(chain.from_iterable(parts))
        started_us = context.tenure.now_us()
        answer = await self._insist(settled)
        context.vitals.store.settles.observe(context.tenure.now_us() - started_us, len(settled))
        unwritten = Unwritten(set(answer.answers), {one.key for one in answer.refused})
        followed = 0
        for report, written in zip(reports, parts, strict=True):
            self._written(report, written, unwritten)
            followed += len(report)
            if followed >= TURN:
                followed = 0
                await context.clock.sleep(0)
        await self._pause(gone_jobs(reports))

    def _written(
        self, report: Report | Ruling, settled: Sequence[Settled], unwritten: Unwritten
    ) -> None:
        if isinstance(report, Ruling) and self._context.unfinished.ruling_written(report.key):
            self._sequels.reload(report.key.job_id)
        if any(unwritten):
            settled = [written for written in settled if self._is_written(written, unwritten)]
        for ending, alike in groupby(settled, attrgetter("ending")):
            written = list(alike)
            self._count(ending, len(written))
            self._follow(report, ending, written)

    def _is_written(self, settled: Settled, unwritten: Unwritten) -> bool:
        """Whether it is, and if not, what follows from that."""
        key, token = settled.key, settled.token
        if key in unwritten.refused:
            return False  # it stays live here: sending it again would be refused again
        if key not in unwritten.stale:
            return True
        self._context.vitals.runs.stale_outcomes += 1
        log.info("outcome.stale", **about_run(key, token))
        if not self._context.unfinished.has_later(key, token):
            self._end(key, token)
        return False

    async def _insist(self, settled: Sequence[Settled]) -> InParts[RunKey, Settled]:
        return await self._context.patience.insist_in_parts(
            "run.settle", settled, self._settle_part
        )

    async def _settle_part(self, settled: Sequence[Settled]) -> set[RunKey]:
        runs = self._context.stores.runs
        return await self._context.patience.insist(
            "run.settle", lambda: runs.settle(settled), even_if_refused=False
        )

    def _count(self, ending: Ending, count: int) -> None:
        runs = self._context.vitals.runs
        runs.entered[ending.state] += count
        if ending.state is RunState.RETRYING:
            runs.retries += count
        if ending.skip_reason is not None:
            runs.skipped[ending.skip_reason] += count

    def _follow(self, report: Report | Ruling, ending: Ending, settled: Sequence[Settled]) -> None:
        """What follows for runs of a report that have the same ending."""
        if isinstance(report, Ruling) or ending.state in FINAL_STATES:
            for written in settled:
                self._end(written.key, written.token)
            return
        staying = {written.key for written in settled if self._stays(written)}
        if ending.retry_at_us is not None:
            for key in staying:
                self._retries.put(Retry(key, ending.retry_at_us))
        else:
            for run in report.runs:
                if run.key in staying:
                    self._sequels.accepted(run)

    def _stays(self, written: Settled) -> bool:
        """Whether a run that goes on does so here; if not, its next attempt is its owner's."""
        context = self._context
        if context.tenure.holds(partition_of(written.key.job_id)):
            context.unfinished.pause(written.key)
            return True
        context.unfinished.end(written.key, written.token)
        return False

    async def _pause(self, gone: Mapping[UUID, int]) -> None:
        """Pauses the jobs whose worker wants no more of them."""
        if gone:
            await self._context.patience.insist_leased(
                "job.pause", lambda lease: self._context.stores.timers.pause_gone(lease, gone)
            )
