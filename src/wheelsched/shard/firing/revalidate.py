"""Stage *revalidate*: reads runs again whose job has changed, or may have changed unnoticed.

Invariant: a run that was in doubt is sent only as the database has it now. It is withdrawn if it
was paused, cancelled or taken over, or if its job was deleted; it is rebuilt if its job was edited.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from wheelsched.core.model import FINAL_STATES, Job, Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.flow import SLICE, yielding
from wheelsched.logs import about_run
from wheelsched.ports import Checked, Retry
from wheelsched.shard.arming.request_builder import RequestBuilder, adopted_lane
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues
from wheelsched.shard.runs.armed_run import OUTDATED, PARKED, ArmedRun
from wheelsched.shard.runs.phase import IN_DOUBT, UNSENT, Phase
from wheelsched.shard.settling.results import Ruling, rule_deleted, rule_paused

log = structlog.get_logger("wheelsched.shard")

Wanted = dict[RunKey, ArmedRun | None]  # None: live, without an attempt of ours
OURS: Final = frozenset({RunState.ARMED, RunState.RUNNING})  # with our token; running, if carried


class Finding(Enum):
    """How an armed run compares with its row in the database."""

    UNCHANGED = auto()
    EDITED = auto()  # its job was edited before it was sent
    DELETED = auto()  # its job was deleted before it was sent
    PAUSED = auto()  # its job was paused before a worker took it
    RETRYING = auto()  # its attempt has ended, and it waits for another
    LOST = auto()  # it has ended, or another shard owns it


class Page(NamedTuple):
    """Runs that are read together, and the jobs that this page completes."""

    wanted: Wanted
    whole: dict[UUID, int]  # with the number of its latest change when its runs were gathered


class Revalidate:
    """Reads runs again, a few of each job in turn."""

    def __init__(self, context: Context, queues: Queues, request_builder: RequestBuilder) -> None:
        self._context = context
        self._config = context.config.fire
        self._queues = queues
        self._request_builder = request_builder
        self._changed: OrderedDict[UUID, None] = OrderedDict()  # jobs whose runs are to be gathered
        self._large_jobs: dict[UUID, int] = {}  # jobs with very many runs, and when to read them
        # The runs to read, by job. Jobs take turns: a large job does not delay the others.
        self._wanted: OrderedDict[UUID, Wanted] = OrderedDict()
        self._changes: dict[UUID, int] = {}  # the change up to which a job is read completely
        self._woken = asyncio.Event()
        self._alarm = context.machine.alarm(self._woken.set)

    async def run(self) -> None:
        """Reads until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take_changed_jobs())
                tasks.create_task(self._take_doubtful())
                while True:
                    await self._woken.wait()
                    await self._gather()
                    if not self._changed and not self._wanted:
                        self._woken.clear()
                    await self._read_page()
        finally:
            self._alarm.close()

    async def _take_changed_jobs(self) -> None:
        while True:
            self._changed.update(dict.fromkeys(await self._context.doubts.to_read.take()))
            self._woken.set()

    async def _take_doubtful(self) -> None:
        registry = self._context.registry
        while True:
            for doubtful in await self._queues.doubtful.take():
                if isinstance(doubtful, ArmedRun):
                    self._want(doubtful.key, doubtful)
                elif (armed := registry.find_armed(doubtful)) is not None:
                    self._want(doubtful, armed)
                elif (live := registry.find(doubtful)) is not None:
                    self._want(doubtful, live.armed)

    async def _gather(self) -> None:
        """Gathers the runs of changed jobs, about as many as one page holds."""
        now_us = self._context.ownership.now_us()
        for job_id in [job_id for job_id, at_us in self._large_jobs.items() if at_us <= now_us]:
            del self._large_jobs[job_id]
            if job_id in self._context.doubts.jobs:
                self._changed[job_id] = None
        found = 0
        while self._changed and found < self._config.read_batch:
            job_id, _ = self._changed.popitem(last=False)
            if job_id not in self._large_jobs:
                found += await self._want_job(job_id)
        if self._large_jobs:
            self._alarm.set(min(self._large_jobs.values()) * 1_000)

    async def _want_job(self, job_id: UUID) -> int:
        """Adds every unfinished run of a job to the runs to read; returns how many.

        A run that is armed meanwhile was claimed after the change, or a further change is recorded
        for it. A job with very many runs is read completely only every few seconds, however often
        it changes: each of its runs is checked when it is due anyway.
        """
        registry = self._context.registry
        self._changes[job_id] = self._context.doubts.jobs.get(job_id, 0)
        known = [
            *((live.key, live.armed) for live in registry.live_of(job_id)),
            *((run.key, run) for run in registry.armed_of(job_id)),
        ]
        self._wanted.setdefault(job_id, {})
        if len(known) <= SLICE:  # as for nearly all jobs: without yielding
            for key, run in known:
                self._want(key, run)
            return len(known)
        self._large_jobs[job_id] = (
            self._context.ownership.now_us() + self._config.large_job_every_us
        )
        async for some in yielding(self._context.clock, known):
            for key, run in some:
                self._want(key, run)
        return len(known)

    def _want(self, key: RunKey, run: ArmedRun | None) -> None:
        of_job = self._wanted.setdefault(key.job_id, {})
        of_job.pop(key, None)  # the latest is read first: it may be due already
        of_job[key] = run
        self._woken.set()

    async def _read_page(self) -> None:
        page = self._take_page()
        if page.wanted:
            await self._read(page.wanted)
        for job_id, number in page.whole.items():
            self._context.doubts.resolve(job_id, number)

    def _take_page(self) -> Page:
        """Takes a few runs of each job in turn."""
        page = Page({}, {})
        most = self._config.read_batch
        while self._wanted and len(page.wanted) < most:
            job_id, of_job = self._wanted.popitem(last=False)
            for _ in range(min(self._config.read_per_job, most - len(page.wanted), len(of_job))):
                key, run = of_job.popitem()
                page.wanted[key] = run
            if of_job:
                self._wanted[job_id] = of_job
            elif job_id in self._changes:
                page.whole[job_id] = self._changes.pop(job_id)
        return page

    async def _read(self, wanted: Wanted) -> None:
        vouched = self._context.doubts.latest
        # A run that is put in doubt from now on is read once more: this read may be older than the
        # change that put it in doubt.
        certain = {
            key for key, run in wanted.items() if run is not None and run.phase not in IN_DOUBT
        }
        checked = await self._context.store.revalidate(wanted.keys())
        found = {check.run.key: check for check in checked}
        edited: list[ArmedRun] = []
        async for some in yielding(self._context.clock, wanted.items(), self._config.compare_slice):
            for key, run in some:
                if run is None:
                    self._apply_live(key, found.get(key))
                elif run.phase not in IN_DOUBT or key not in certain:
                    run.vouched = max(run.vouched, vouched)
                    self._apply(run, found.get(key), edited)
        if edited:
            await self._rebuild(edited, found, certain)

    def _apply(self, run: ArmedRun, check: Checked | None, edited: list[ArmedRun]) -> None:
        """Releases a run, withdraws it, or adds it to `edited`."""
        if run.phase is Phase.WITHDRAWN:
            return
        if self._is_settled(run):
            live = self._context.registry.find(run.key)
            if live is not None and live.armed is None:
                self._apply_live(run.key, check)
            return
        match _compare(run, check):
            case Finding.UNCHANGED:
                self._confirm(run, check)
            case Finding.EDITED if run.version == PARKED:
                pass  # its request is built when it goes
            case Finding.EDITED:
                edited.append(run)
            case Finding.RETRYING:
                # It stays live: settle has just written its outcome and goes on from there. But
                # settle does not know the retry if a worker accepted the run and then failed it
                # before the acceptance was written.
                assert check is not None
                self._put_retry(check.run)
            case Finding.DELETED | Finding.PAUSED | Finding.LOST as finding:
                self._withdraw(run, check, finding)

    def _withdraw(self, run: ArmedRun, check: Checked | None, finding: Finding) -> None:
        """Withdraws a run, and ends it if no other component does."""
        self._context.registry.withdraw(run)
        if finding is Finding.LOST or check is None:
            log.info("run.withdrawn", **about_run(run.key, run.token))
        elif finding is Finding.PAUSED:
            log.info("run.job_paused", **about_run(run.key, run.token))
            self._queues.results.put(rule_paused(check.run))
        else:
            log.info("run.job_deleted", **about_run(run.key, run.token))
            is_ours = self._context.ownership.holds(partition_of(run.key.job_id))
            self._queues.results.put(rule_deleted(check.run, may_be_carried=not is_ours))

    def _confirm(self, run: ArmedRun, check: Checked | None) -> None:
        """Releases a run that is current. One that a worker has may be given back: then its request
        is built again if its job was edited."""
        if run.phase in IN_DOUBT:
            run.vouched = self._context.doubts.latest
            self._queues.revalidated.put(run)
        elif run.phase is Phase.SENT and check is not None and check.version != run.version:
            run.version = OUTDATED

    def _is_settled(self, run: ArmedRun) -> bool:
        """Whether the outcome of an attempt was written meanwhile, and its run is still live."""
        live = self._context.registry.find(run.key)
        return run.started_us is not None and live is not None and live.armed is not run

    def _apply_live(self, key: RunKey, check: Checked | None) -> None:
        """Updates a live run without an attempt of ours: its worker or another shard may have
        written its outcome."""
        if check is None or check.run.state in FINAL_STATES:
            self._context.registry.end(key)
        elif check.run.state is RunState.RETRYING:
            self._put_retry(check.run)

    def _put_retry(self, run: Run) -> None:
        if run.retry_at_us is not None:
            self._queues.upcoming.retries.put(Retry(run.key, run.retry_at_us))

    async def _rebuild(
        self,
        edited: Sequence[ArmedRun],
        found: Mapping[RunKey, Checked],
        certain: Collection[RunKey],
    ) -> None:
        olds = await self._request_builder.with_payloads([found[run.key].run for run in edited])
        jobs = await self._request_builder.read_jobs({run.key.job_id for run in edited})
        by_id = {job.job_id: job for job in jobs}
        pairs = zip(edited, olds, strict=True)
        async for some in yielding(self._context.clock, pairs, self._config.rebuild_slice):
            for run, old in some:
                is_read_again = run.phase in IN_DOUBT and run.key in certain
                if run.phase in UNSENT and not is_read_again:
                    self._rebuild_one(run, by_id.get(run.key.job_id), old)

    def _rebuild_one(self, run: ArmedRun, job: Job | None, old: Run) -> None:
        registry = self._context.registry
        if job is None:
            registry.withdraw(run)
            return
        new = self._request_builder.prepare(job, old, run.token, run.fire_at_us)
        if isinstance(new, Ruling):
            registry.withdraw(run)
            self._queues.results.put(new)
            return
        new.vouched = self._context.doubts.latest if run.phase in IN_DOUBT else run.vouched
        if run.version == OUTDATED and run.phase is Phase.SUSPENDED:
            self._complete(run, new)
            return
        if run.phase is Phase.ADMITTED and run.route.room is not None:
            # It had reached its queue in time, so its misfire policy does not apply any more.
            new.lane = adopted_lane(old, job, self._context.clock.now_us())
        if registry.replace(run, new):
            self._want(new.key, new)

    def _complete(self, run: ArmedRun, new: ArmedRun) -> None:
        """Gives a run its request that was parked or given back. It stays live meanwhile."""
        run.version, run.vouched = new.version, new.vouched
        run.rules, run.route, run.priority = new.rules, new.route, new.priority
        run.prepared = new.prepared
        self._queues.revalidated.put(run)


def _compare(run: ArmedRun, check: Checked | None) -> Finding:
    """Compares an armed run with its row in the database."""
    state = check.run.state if check and check.run.token == run.token else None
    if state is RunState.RETRYING and run.started_us is not None:
        return Finding.RETRYING
    if check is None or state not in OURS:
        return Finding.LOST
    if run.started_us is not None:
        return Finding.UNCHANGED
    if check.version is None:
        # The job was deleted too late to withdraw a run that is armed or carried; or an application
        # deleted it, which does not withdraw runs.
        return Finding.DELETED
    if check.is_paused and run.route.room is not None:
        return Finding.PAUSED  # the API cannot know whether a worker has it, so it is skipped here
    return Finding.UNCHANGED if check.version == run.version else Finding.EDITED
