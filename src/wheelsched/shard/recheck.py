"""Between load and fire: runs whose job has changed, or that nobody can vouch for, are read again.

Invariant: a run that was in doubt is sent only as the database says it is now: withdrawn if it was
paused, cancelled or taken over, or if its job is gone; made anew if its job was edited.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core.duration import SECOND
from wheelsched.core.model import FINAL_STATES, Job, Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.logs import about_run
from wheelsched.ports import Checked, Retry
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.portions import PORTION, in_portions
from wheelsched.shard.preparation import Preparation
from wheelsched.shard.reports import Ruling, buried
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000
SHARE = 250  # of a batch, for one job while others wait
JUDGE_TURN = 100  # runs judged in one turn of the loop
CROWD_EVERY_US = 10 * SECOND  # how often a job with very many runs is read as a whole
TURN = 20  # requests prepared in one turn of the loop
Wanted = dict[RunKey, ArmedRun | None]  # None: live, without an attempt of ours
OURS = frozenset({RunState.ARMED, RunState.RUNNING})  # with our token; running, if we carry it


class Outlets(Struct, frozen=True):
    """What becomes of a run that was looked at."""

    clear: Callable[[ArmedRun], None]
    replace: Callable[[ArmedRun, ArmedRun], None]
    withdraw: Callable[[ArmedRun], None]
    ended: Callable[[RunKey], None]
    settle: Callable[[Ruling], None]


class Recheck:
    """Looks again."""

    def __init__(
        self, context: Context, preparation: Preparation, retries: Retries, outlets: Outlets
    ) -> None:
        self._context = context
        self._preparation = preparation
        self._retries = retries
        self._outlets = outlets
        self._asked: OrderedDict[UUID, None] = OrderedDict()  # jobs that have changed
        self._crowds: dict[UUID, int] = {}  # those with very many runs, and when to look at them
        # What is to be read, by job. The jobs take turns: one with very many holds up no other.
        self._wanted: OrderedDict[UUID, Wanted] = OrderedDict()
        self._changes: dict[UUID, int] = {}  # up to which change these jobs are read as a whole
        self._woken = asyncio.Event()
        self._alarm = context.machine.alarm(self._woken.set)

    def look_at(self, runs: Iterable[ArmedRun]) -> None:
        """Reads runs that are held back, soon."""
        for run in runs:
            self._want(run.key, run)

    def look_at_keys(self, keys: Iterable[RunKey]) -> None:
        """Reads those of the runs that are armed or live here, soon."""
        unfinished = self._context.unfinished
        for key in keys:
            live, armed = unfinished.find(key), unfinished.find_armed(key)
            if armed is not None:
                self._want(key, armed)
            elif live is not None:
                self._want(key, live.armed)

    def look_at_job(self, job_id: UUID) -> None:
        """Reads every unfinished run of a job that has changed, soon. Nothing of it is sent before
        that. However often this is asked for before it begins, it happens once."""
        self._context.doubts.changed(job_id)
        self._asked[job_id] = None
        self._woken.set()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        try:
            while True:
                await self._woken.wait()
                await self._gather()
                if not self._asked and not self._wanted:
                    self._woken.clear()
                await self._look_at_some()
        finally:
            self._alarm.close()

    async def _gather(self) -> None:
        """Finds the runs of jobs that have changed: about as many as are read in a batch."""
        now_us = self._context.tenure.now_us()
        for job_id in [job_id for job_id, at_us in self._crowds.items() if at_us <= now_us]:
            del self._crowds[job_id]
            if job_id in self._context.doubts.jobs:
                self._asked[job_id] = None
        found = 0
        while self._asked and found < BATCH:
            job_id, _ = self._asked.popitem(last=False)
            if job_id not in self._crowds:
                found += await self._want_job(job_id)
        if self._crowds:
            self._alarm.set(min(self._crowds.values()) * 1_000)

    async def _want_job(self, job_id: UUID) -> int:
        """Has every unfinished run of a job read; gives how many.

        What is armed meanwhile was claimed after the change, or tells of another one. A job with
        very many runs is read as a whole once in a while, however often it changes: each of them is
        looked at when it comes due.
        """
        unfinished = self._context.unfinished
        self._changes[job_id] = self._context.doubts.jobs.get(job_id, 0)
        known = [
            *((live.key, live.armed) for live in unfinished.live_of(job_id)),
            *((run.key, run) for run in unfinished.armed_of(job_id)),
        ]
        self._wanted.setdefault(job_id, {})
        if len(known) <= PORTION:  # as of nearly all jobs: in this turn of the loop
            for key, run in known:
                self._want(key, run)
            return len(known)
        self._crowds[job_id] = self._context.tenure.now_us() + CROWD_EVERY_US
        async for portion in in_portions(self._context.clock, known):
            for key, run in portion:
                self._want(key, run)
        return len(known)

    def _want(self, key: RunKey, run: ArmedRun | None) -> None:
        of_job = self._wanted.setdefault(key.job_id, {})
        of_job.pop(key, None)  # the latest comes first: it may be held back already
        of_job[key] = run
        self._woken.set()

    async def _look_at_some(self) -> None:
        """Reads a share of each job in turn."""
        wanted: Wanted = {}
        whole: dict[UUID, int] = {}
        while self._wanted and len(wanted) < BATCH:
            job_id, of_job = self._wanted.popitem(last=False)
            for _ in range(min(SHARE, BATCH - len(wanted), len(of_job))):
                key, run = of_job.popitem()
                wanted[key] = run
            if of_job:
                self._wanted[job_id] = of_job
            elif job_id in self._changes:
                whole[job_id] = self._changes.pop(job_id)
        await self._look(wanted)
        for job_id, number in whole.items():
            self._context.doubts.resolve(job_id, number)

    async def _look(self, wanted: Wanted) -> None:
        if not wanted:
            return
        vouched = self._context.doubts.latest
        # A run that is held back from now on is looked at once more: this look may be older than
        # the change that it is held back for.
        unheld = {key for key, run in wanted.items() if run is not None and not run.is_held}
        checked = await self._context.patience.insist(
            "run.recheck", lambda: self._context.stores.runs.recheck(wanted.keys())
        )
        found = {check.run.key: check for check in checked}
        edited: list[ArmedRun] = []
        async for portion in in_portions(self._context.clock, wanted.items(), JUDGE_TURN):
            for key, run in portion:
                if run is None:
                    self._judge_live(key, found.get(key))
                    continue
                if run.is_held and key in unheld:
                    continue
                run.vouched = max(run.vouched, vouched)
                if self._judge(run, found.get(key)):
                    edited.append(run)
        if edited:
            await self._make_anew(edited, found)

    def _judge(self, run: ArmedRun, check: Checked | None) -> bool:
        """Clears a run or withdraws it; True when it is neither, because its job was edited."""
        if run.is_withdrawn or self._is_over(run, check):
            return False
        state = check.run.state if check and check.run.token == run.token else None
        if check and state is RunState.RETRYING and run.started_us is not None:
            # It stays live: its outcome was just written, and settle goes on. But of a worker that
            # has accepted it, and failed before that was written, settle knows no retry.
            self._put_retry(check.run)
            return False
        if check is None or state not in OURS:
            log.info("run.withdrawn", **about_run(run.key, run.token))
            self._outlets.withdraw(run)
            return False
        if check.version is None and run.started_us is None:
            # Deleted, too late to withdraw what was armed or is carried, or by an application,
            # which does not.
            log.info("run.buried", **about_run(run.key, run.token))
            self._outlets.withdraw(run)
            is_held = self._context.tenure.holds(partition_of(run.key.job_id))
            self._outlets.settle(buried(check.run, may_be_carried=not is_held))
            return False
        if check.version is None or check.version == run.version or run.started_us is not None:
            self._outlets.clear(run)
            return False
        return True

    def _is_over(self, run: ArmedRun, check: Checked | None) -> bool:
        """Whether the outcome of an attempt was written meanwhile, and its run goes on without."""
        live = self._context.unfinished.find(run.key)
        if run.started_us is None or live is None or live.armed is run:
            return False
        if live.armed is None:
            self._judge_live(run.key, check)
        return True

    def _judge_live(self, key: RunKey, check: Checked | None) -> None:
        """A live run without an attempt of ours: its worker, or another shard, has written."""
        if check is None or check.run.state in FINAL_STATES:
            self._outlets.ended(key)
        elif check.run.state is RunState.RETRYING:
            self._put_retry(check.run)

    def _put_retry(self, run: Run) -> None:
        if run.retry_at_us is not None:
            self._retries.put(Retry(run.key, run.retry_at_us))

    async def _make_anew(self, edited: Sequence[ArmedRun], found: dict[RunKey, Checked]) -> None:
        held = {run.key for run in edited if run.is_held}
        olds = await self._preparation.with_payloads([found[run.key].run for run in edited])
        jobs = await self._preparation.read_jobs({run.key.job_id for run in edited})
        by_id = {job.job_id: job for job in jobs}
        async for portion in in_portions(self._context.clock, zip(edited, olds, strict=True), TURN):
            for run, old in portion:
                is_held_since = run.is_held and run.key not in held  # and so looked at once more
                if not run.is_withdrawn and run.started_us is None and not is_held_since:
                    self._make_one_anew(run, by_id.get(run.key.job_id), old)

    def _make_one_anew(self, run: ArmedRun, job: Job | None, old: Run) -> None:
        if job is None:
            self._outlets.withdraw(run)
            return
        new = self._preparation.prepare(job, old, run.token, run.fire_at_us)
        if isinstance(new, Ruling):
            self._outlets.withdraw(run)
            self._outlets.settle(new)
        else:
            new.vouched = run.vouched
            self._outlets.replace(run, new)
