"""Between load and fire: runs whose job has changed, or that nobody can vouch for, are read again.

Invariant: a run that was in doubt is sent only as the database says it is now: withdrawn if it was
paused, cancelled or taken over, or if its job is gone; made anew if its job was edited.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core.model import FINAL_STATES, Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.logs import about_run
from wheelsched.ports import Checked, Retry
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.preparation import Preparation
from wheelsched.shard.reports import Ruling, buried
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000
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
        self._runs: dict[RunKey, ArmedRun] = {}
        self._keys: set[RunKey] = set()
        self._woken = asyncio.Event()

    def look_at(self, runs: Iterable[ArmedRun]) -> None:
        """Reads runs that are held back, soon."""
        self._runs.update((run.key, run) for run in runs)
        self._woken.set()

    def look_at_job(self, job_id: UUID) -> None:
        """Reads every unfinished run of a job that has changed, soon."""
        unfinished = self._context.unfinished
        self._runs.update((run.key, run) for run in unfinished.armed_of(job_id))
        for live in unfinished.live_of(job_id):
            if live.armed is None:
                self._keys.add(live.key)
            else:
                self._runs[live.key] = live.armed
        self._woken.set()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await self._woken.wait()
            runs = [self._runs.pop(key) for key in tuple(islice(self._runs, BATCH))]
            keys = [self._keys.pop() for _ in range(min(len(self._keys), BATCH))]
            if not self._runs and not self._keys:
                self._woken.clear()
            await self._look(runs, keys)

    async def _look(self, runs: Sequence[ArmedRun], keys: Sequence[RunKey]) -> None:
        wanted = [*(run.key for run in runs), *keys]
        if not wanted:
            return
        checked = await self._context.patience.insist(
            "run.recheck", lambda: self._context.stores.runs.recheck(wanted)
        )
        found = {check.run.key: check for check in checked}
        edited = [run for run in runs if self._judge(run, found.get(run.key))]
        for key in keys:
            self._judge_live(key, found.get(key))
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
        jobs = await self._preparation.read_jobs({run.key.job_id for run in edited})
        by_id = {job.job_id: job for job in jobs}
        for run in edited:
            job = by_id.get(run.key.job_id)
            if run.is_withdrawn or run.started_us is not None:
                continue
            if job is None:
                self._outlets.withdraw(run)
            else:
                old = found[run.key].run
                new = self._preparation.prepare(job, old, run.token, run.fire_at_us)
                if isinstance(new, Ruling):
                    self._outlets.withdraw(run)
                    self._outlets.settle(new)
                else:
                    self._outlets.replace(run, new)
