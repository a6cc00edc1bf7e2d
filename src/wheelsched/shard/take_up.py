"""Sweep: what was left behind is taken up, in the background, and at once where it is wanted.

Invariant: the runs of a job are taken up together, while no hand-over is under way: first those
that are live, then those that are sent. A run that was claimed and may have been sent is sent,
under a new token, however late; one that is known not to have been sent goes by its misfire policy;
one that a worker or another shard has in hand is watched.

A shard that dies may leave hundreds of thousands of armed runs. They are taken up in small batches,
the earliest first; a job that has something new to arm waits for its own runs alone.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.core import misfire
from wheelsched.core.compile import compile_schedule
from wheelsched.core.model import (
    UNFINISHED_STATES,
    Job,
    JobState,
    Lane,
    Run,
    RunKey,
    RunState,
    Trigger,
)
from wheelsched.core.partition import partition_of
from wheelsched.ports import Adoption, Checked, Retry
from wheelsched.shard.armed import SOON_US, ArmedRun
from wheelsched.shard.claims import Claims
from wheelsched.shard.context import Context
from wheelsched.shard.left_behind import LeftJob, Reminder
from wheelsched.shard.portions import in_portions
from wheelsched.shard.preparation import Preparation, adopted_lane
from wheelsched.shard.reports import Report, Ruling, buried
from wheelsched.shard.retries import Retries
from wheelsched.shard.watch import ACCEPTED

log = structlog.get_logger("wheelsched.shard")

BATCH = 500  # no hand-over begins before a batch has ended
AT_ONCE = 2  # batches under way: the database adopts one while the requests of another are made
TURN = 20  # requests prepared in one turn of the loop


class Outlets(Struct, frozen=True):
    """Where runs go from here."""

    fire: Callable[[ArmedRun], None]
    settle: Callable[[Report | Ruling], None]
    watch: Callable[[ArmedRun, UUID | None], None]  # with the shard that carries it, if one does
    remind: Callable[[UUID, Reminder], None]  # a job can be armed: this is what was wanted of it


class TakeUp:
    """Takes up runs."""

    def __init__(
        self, context: Context, preparation: Preparation, retries: Retries, outlets: Outlets
    ) -> None:
        self._context = context
        self._preparation = preparation
        self._retries = retries
        self._outlets = outlets

    async def run(self) -> None:
        """Takes up what is left behind until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_on_with_the_wanted())
            for _ in range(AT_ONCE):
                tasks.create_task(self._keep_on_with_the_rest())

    async def _keep_on_with_the_wanted(self) -> None:
        left = self._context.unfinished.left
        while True:
            await left.has_wanted.wait()
            await self._take_up_left(left.take_wanted)

    async def _keep_on_with_the_rest(self) -> None:
        left = self._context.unfinished.left
        while True:
            await left.has_any.wait()
            await self._take_up_left(left.take_earliest)

    async def _take_up_left(self, take: Callable[[int], list[LeftJob]]) -> None:
        """Takes up a batch; which one is said when no hand-over can come in between."""
        async with self._context.arming.passing():
            jobs = take(BATCH)
            few = [job for job in jobs if len(job.keys) <= BATCH]
            await self.take_up([key for job in few for key in job.keys])
            await self._remind(few)
        for job in jobs:
            if len(job.keys) > BATCH:
                await self._take_up_crowd(job)
                await self._remind([job])

    async def _take_up_crowd(self, job: LeftJob) -> None:
        """Takes up a job with very many runs, in steps between which a hand-over may begin: while
        one waits to, nothing is armed. In the first round those that are live, and when all of
        them are known, in the second, those that are sent."""
        unsent: list[RunKey] = []
        for start in range(0, len(job.keys), BATCH):
            async with self._context.arming.passing():
                with self._context.changes.kept():
                    runs = await self._read(job.keys[start : start + BATCH])
                    unsent += [run.key for run in runs if self._is_sent_again(run)]
                    await self._take_up_runs([run for run in runs if not self._is_sent_again(run)])
        for start in range(0, len(unsent), BATCH):
            async with self._context.arming.passing():
                await self.take_up(unsent[start : start + BATCH])

    def _is_sent_again(self, run: Run) -> bool:
        return run.state is RunState.ARMED or (
            run.state is RunState.RUNNING and self._is_forgotten(run)
        )

    async def _remind(self, jobs: Sequence[LeftJob]) -> None:
        """Whoever wanted a job that was taken up may go on with it."""
        for job in jobs:
            reminders = self._context.unfinished.left.taken_up(job)
            async for portion in in_portions(self._context.clock, reminders):
                for reminder in portion:
                    self._outlets.remind(job.job_id, reminder)

    async def take_up(self, keys: Sequence[RunKey]) -> None:
        """Takes up those of the runs that are unfinished still."""
        with self._context.changes.kept():
            lost = await self._take_up_runs(await self._read(keys))
            await self._take_up_runs(await self._read(lost))

    async def _read(self, keys: Sequence[RunKey], *, even_if_known: bool = False) -> list[Run]:
        """Those of the runs that are unfinished, ours, and unknown here."""
        context = self._context
        checked: list[Checked] = []
        for start in range(0, len(keys), BATCH):
            part = keys[start : start + BATCH]
            checked += await context.patience.insist(
                "run.recheck", partial(context.stores.runs.recheck, part)
            )
        runs = [
            check.run
            for check in checked
            if check.run.state in UNFINISHED_STATES
            and context.tenure.holds(partition_of(check.run.job_id))
            and (even_if_known or not context.unfinished.knows(check.run.key))
        ]
        return sorted(runs, key=lambda run: (run.job_id.int, run.due_us))

    async def _take_up_runs(self, runs: Sequence[Run]) -> list[RunKey]:
        """Gives those that were not won: whoever had them has settled them meanwhile."""
        jobs = await self._preparation.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        left_armed = []
        for run in runs:
            job = by_id.get(run.job_id)
            match run.state:
                case RunState.RETRYING:
                    self._take_up_retry(run)
                case RunState.RUNNING if job is None and self._is_carried(run):
                    pass  # it may be sent any moment; if its carrier dies, a later look finds it
                case RunState.RUNNING if job is not None and not self._is_forgotten(run):
                    self._take_up_running(job, run)
                case RunState.ARMED | RunState.RUNNING if job is not None:
                    left_armed.append((job, run))
                case _:
                    self._bury(run)
        lost: list[RunKey] = []
        for start in range(0, len(left_armed), BATCH):
            lost += await self._adopt(left_armed[start : start + BATCH])
        return lost

    def _is_forgotten(self, run: Run) -> bool:
        """Whether it is ours to bring to its end by the database, and nobody here does."""
        return run.http_status != ACCEPTED and run.shard == self._context.tenure.shard_id

    def _is_carried(self, run: Run) -> bool:
        """Whether another shard that lives brings it to its end."""
        return (
            run.http_status != ACCEPTED
            and run.shard != self._context.tenure.shard_id
            and run.shard in self._context.tenure.seen
        )

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
            self._outlets.watch(armed, None if run.http_status == ACCEPTED else run.shard)

    async def _adopt(self, left: Sequence[tuple[Job, Run]]) -> set[RunKey]:
        """Makes armed runs ours, and sends them: nobody knows whether they were sent before.

        Gives those that were not won. What a later run has ended, or ends meanwhile, stays so.
        """
        unfinished, tenure = self._context.unfinished, self._context.tenure
        adoptions = [
            Adoption(run.key, run.token or 0, tenure.next_token(run.job_id))
            for _, run in left
            if tenure.holds(partition_of(run.job_id)) and not unfinished.is_ruled(run.key)
        ]
        if not adoptions:
            return {run.key for _, run in left}
        with unfinished.claiming(adoption.key for adoption in adoptions) as given_up:
            lost = await Claims(self._context).adopt(adoptions)  # others may be under way
            tokens = {adoption.key: adoption.token for adoption in adoptions}
            won = [(job, run) for job, run in left if run.key in tokens and run.key not in lost]
            log.info("runs.adopted", count=len(won))
            self._send(await self._prepare(won, tokens), given_up)
        return {run.key for _, run in left if run.key not in tokens} | lost

    async def _prepare(
        self, won: Sequence[tuple[Job, Run]], tokens: Mapping[RunKey, int]
    ) -> list[ArmedRun | Ruling]:
        followed = {
            run.key
            for (_, run), (_, later) in pairwise(won)
            if run.job_id == later.job_id and 0 < later.due_us - run.due_us <= SOON_US
        }
        now_us = self._context.clock.now_us()
        runs = await self._preparation.with_payloads([run for _, run in won])
        prepared: list[ArmedRun | Ruling] = []
        jobs = [job for job, _ in won]
        async for portion in in_portions(
            self._context.clock, list(zip(jobs, runs, strict=True)), TURN
        ):
            for job, run in portion:
                made = self._prepare_one(job, run, tokens[run.key], now_us)
                if isinstance(made, ArmedRun):
                    made.is_followed = run.key in followed
                prepared.append(made)
        return prepared

    def _prepare_one(self, job: Job, run: Run, token: int, now_us: int) -> ArmedRun | Ruling:
        """What is known not to have been sent goes by its misfire policy; the rest is sent."""
        adopted = replace(run, lane=adopted_lane(run, job, now_us), token=token)
        if self._may_misfire(job, run):
            schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
            reason = misfire.skip_reason(job.misfire, schedule, run.due_us, now_us)
            if reason is not None:
                return Ruling(key=run.key, token=token, state=RunState.SKIPPED, skip_reason=reason)
        return self._preparation.prepare(job, adopted, token)

    def _may_misfire(self, job: Job, run: Run) -> bool:
        """Whether a run was armed for its due time, and left unsent by a shard that released it.

        In the late lane is what misfire has decided about before, or a person has retried. Of a job
        that was paused or edited since, nobody knows whether a later due time fires.
        """
        return (
            run.state is RunState.ARMED
            and job.state is JobState.ACTIVE
            and job.updated_at_us <= run.due_us
            and run.trigger is Trigger.SCHEDULE
            and run.lane is Lane.ON_TIME
            and not run.has_begun
            and run.token is not None
            and self._context.tenure.was_released(run.job_id, run.token)
        )

    def _send(self, prepared: Sequence[ArmedRun | Ruling], given_up: Collection[RunKey]) -> None:
        """In one turn of the loop: so those of one route go out in few requests."""
        for run in prepared:
            if run.key in given_up:
                cancelled = Ruling(key=run.key, token=run.token, state=RunState.CANCELLED)
                self._outlets.settle(cancelled)
                continue
            if isinstance(run, Ruling):
                self._outlets.settle(run)
                continue
            if not run.is_first:
                self._context.unfinished.revive(run.key, run.token)
            self._outlets.fire(run)

    async def take_back(self, runs: Sequence[Run]) -> set[RunKey]:
        """Takes up the runs of a shard that carried them and is gone; gives those that are over
        or not ours."""
        async with self._context.arming.passing():
            with self._context.changes.kept():
                return await self._take_back(runs)

    async def _take_back(self, runs: Sequence[Run]) -> set[RunKey]:
        jobs = await self._preparation.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        for run in runs:
            if run.job_id not in by_id:
                self._bury(run)
        carried = [(by_id[run.job_id], run) for run in runs if run.job_id in by_id]
        lost = await self._adopt(carried)  # it is live meanwhile
        going_on = await self._read(sorted(lost), even_if_known=True)
        await self._take_up_runs(going_on)
        return lost - {run.key for run in going_on}
