"""Stage *sweep*: takes up what a dead shard or a silent worker left behind.

Invariant: the unfinished runs of a partition are known before anything new of it is armed. A run
that was claimed and may not have been sent is sent, under a new token; one that a worker or another
shard has in hand is watched.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.core.model import Job, Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.ports import Adoption, Mark, Retry
from wheelsched.shard import watch
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.claims import Claims
from wheelsched.shard.context import Context
from wheelsched.shard.portions import in_portions
from wheelsched.shard.preparation import Preparation, adopted_lane
from wheelsched.shard.reports import Report, Ruling, buried
from wheelsched.shard.retries import Retries
from wheelsched.shard.watch import ACCEPTED, Watch

log = structlog.get_logger("wheelsched.shard")

PAGE = 1_000
MOST_COMPARED = 20_000  # armed runs; more are compared when the crowd has gone


class Outlets(Struct, frozen=True):
    """Where runs go from here."""

    fire: Callable[[ArmedRun], None]
    settle: Callable[[Report | Ruling], None]
    ended: Callable[[RunKey], None]
    load: Callable[[Collection[int]], Awaitable[None]]


class Sweep:
    """Takes up what was left behind."""

    def __init__(
        self, context: Context, preparation: Preparation, retries: Retries, outlets: Outlets
    ) -> None:
        self._context = context
        self._preparation = preparation
        self._retries = retries
        self._outlets = outlets
        self._gained: set[int] = set()
        self._woken = asyncio.Event()
        self._watch = Watch(
            context, retries, watch.Outlets(outlets.settle, outlets.ended, self._take_back)
        )

    def gained(self, partitions: Collection[int]) -> None:
        """Takes over the unfinished runs of partitions that have become ours, soon."""
        self._gained.update(partitions)
        self._woken.set()

    def watch(self, run: ArmedRun) -> None:
        """Waits for a worker that has accepted a run."""
        self._watch.add(run)

    async def forget(self, partitions: Collection[int]) -> None:
        """Watches nothing any more in partitions that are ours no more."""
        await self._watch.forget(partitions)

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_taking_up())
            tasks.create_task(self._watch.run())
            tasks.create_task(self._keep_in_step())

    async def _keep_taking_up(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            gained, self._gained = frozenset(self._gained), set()
            await self._take_up(gained)
            self._context.tenure.ready(gained)
            await self._outlets.load(gained & self._context.tenure.partitions)

    async def _keep_in_step(self) -> None:
        """Now and then compares what is known with what the database says.

        No claim is under way meanwhile: what is unfinished there and unknown here was forgotten,
        and is taken up as if somebody else had left it behind.
        """
        context = self._context
        while True:
            await context.clock.sleep(context.config.refresh_us * 1_000)
            await self._preparation.refresh()
            if context.unfinished.armed_count <= MOST_COMPARED and context.tenure.is_trusted:
                async with context.arming.closed():
                    await self._take_up(context.tenure.ready_partitions)
                    await self._mark()

    async def _mark(self) -> None:
        """Notes from where on unfinished runs are to be looked for: the next owner is quicker.

        Those that run elsewhere or wait for an attempt are written down apart, and hold nothing up.
        """
        context = self._context
        now_us = context.clock.now_us()
        live_since_us = dict.fromkeys(context.tenure.ready_partitions, now_us)
        async for job_ids in in_portions(context.clock, context.unfinished.job_ids()):
            for job_id in job_ids:
                partition = partition_of(job_id)
                for key in context.unfinished.attempted_of(job_id):
                    if partition in live_since_us:
                        live_since_us[partition] = min(live_since_us[partition], key.due_us)
        marks = {
            partition: Mark(instant_us, context.tenure.next_token_in(partition))
            for partition, instant_us in live_since_us.items()
        }
        timers = context.stores.timers
        await context.patience.insist_leased(
            "partition.mark", lambda lease: timers.advance(lease, marks)
        )

    async def _take_up(self, partitions: Collection[int]) -> None:
        """Learns of every unfinished run of the partitions, page by page."""
        page = await self._list_unfinished(partitions, None)
        while page:
            unknown = [run for run in page if not self._context.unfinished.knows(run.key)]
            await self._take_up_page(unknown)
            page = await self._list_unfinished(partitions, page[-1])

    async def _list_unfinished(self, partitions: Collection[int], after: Run | None) -> list[Run]:
        runs = self._context.stores.runs
        return await self._context.patience.insist_leased(
            "run.sweep", lambda lease: runs.list_unfinished(lease, partitions, PAGE, after)
        )

    async def _take_up_page(self, runs: Sequence[Run]) -> None:
        with self._context.changes.kept():
            await self._take_up_known(runs)

    async def _take_up_known(self, runs: Sequence[Run]) -> None:
        jobs = await self._preparation.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        left_armed = []
        for run in runs:
            job = by_id.get(run.job_id)
            match run.state:
                case RunState.RETRYING:
                    self._take_up_retry(run)
                case RunState.RUNNING if job is not None:
                    self._take_up_running(job, run)
                case RunState.ARMED if job is not None:
                    left_armed.append((job, run))
                case _:
                    self._bury(run)
        await self._adopt(left_armed)

    def _bury(self, run: Run) -> None:
        """A run whose job was deleted, too late to keep it from being sent: nobody sends it now."""
        self._outlets.settle(buried(run))

    def _take_up_retry(self, run: Run) -> None:
        if run.has_begun:
            assert run.token is not None
            self._context.unfinished.revive(run.key, run.token)
        if run.retry_at_us is not None:
            self._retries.put(Retry(run.key, run.retry_at_us))

    def _take_up_running(self, job: Job, run: Run) -> None:
        """A run that is in hand elsewhere: live, and not ours to send."""
        assert run.token is not None
        self._context.unfinished.revive(run.key, run.token)
        armed = self._preparation.prepare(job, run, run.token, run.due_us)
        if isinstance(armed, Ruling):
            self._outlets.settle(armed)
        else:
            self._watch.take_up(armed, carrier=None if run.http_status == ACCEPTED else run.shard)

    async def _adopt(self, left: Sequence[tuple[Job, Run]]) -> set[RunKey]:
        """Makes armed runs ours, and sends them: nobody knows whether they were sent before.

        Gives those that were not won.
        """
        tenure = self._context.tenure
        adoptions = [
            Adoption(run.key, run.token or 0, tenure.next_token(run.job_id))
            for _, run in left
            if tenure.holds(partition_of(run.job_id))
        ]
        if not adoptions:
            return {run.key for _, run in left}
        lost = await Claims(self._context).adopt(adoptions)  # others may be under way
        tokens = {adoption.key: adoption.token for adoption in adoptions}
        now_us = self._context.clock.now_us()
        for job, run in left:
            if run.key in tokens and run.key not in lost:
                if run.has_begun:
                    self._context.unfinished.revive(run.key, tokens[run.key])
                adopted = replace(run, lane=adopted_lane(run, job, now_us), token=tokens[run.key])
                self._send(job, adopted)
        log.info("runs.adopted", count=len(adoptions) - len(lost))
        return {run.key for _, run in left if run.key not in tokens} | lost

    def _send(self, job: Job, run: Run) -> None:
        assert run.token is not None
        armed = self._preparation.prepare(job, run, run.token)
        if isinstance(armed, Ruling):
            self._outlets.settle(armed)
        else:
            self._outlets.fire(armed)

    async def _take_back(self, runs: Sequence[Run]) -> None:
        """Takes up the runs of a shard that carried them and is gone."""
        jobs = await self._preparation.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        for run in runs:
            if run.job_id in by_id:
                self._context.unfinished.end(run.key)
            else:
                self._bury(run)
        left = [(by_id[run.job_id], run) for run in runs if run.job_id in by_id]
        for key in await self._adopt(left):
            self._outlets.ended(key)  # it has ended meanwhile: others may have waited for it
