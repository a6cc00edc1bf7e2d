"""Stage *adopt*: takes over orphaned runs in the background, urgent jobs first.

Invariant: the runs of a job are adopted together, while no hand-over is in progress: first the live
runs, then those to send. A run that was claimed and may have been sent is sent under a new token,
however late. A run that is known to be unsent follows its misfire policy. A run that a worker or
another shard handles is watched. So is a run of a queue that may have been handed out: it is
claimed when nothing was heard of it for a delivery lease.

A dead shard may leave hundreds of thousands of armed runs. They are adopted in small batches, the
earliest first. A job with new runs to arm waits only for its own orphans.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

import structlog
from msgspec.structs import replace

from wheelsched.core.model import (
    UNFINISHED_STATES,
    Job,
    JobState,
    Lane,
    QueueTarget,
    Run,
    RunKey,
    RunState,
    Trigger,
)
from wheelsched.core.partition import partition_of
from wheelsched.core.policies import misfire
from wheelsched.core.policies.policy import OnOverlap
from wheelsched.flow import yielding
from wheelsched.ports import Adoption, Checked, Retry
from wheelsched.schedule.compile import compile_schedule
from wheelsched.shard.arming.request_builder import RequestBuilder, adopted_lane, planned_us
from wheelsched.shard.context import Context
from wheelsched.shard.queues import ExternalRun, Queues
from wheelsched.shard.recovery.external_runs import ACCEPTED
from wheelsched.shard.recovery.orphans import OrphanedJob
from wheelsched.shard.runs.armed_run import OUTDATED, SOON_US, ArmedRun
from wheelsched.shard.settling.results import Ruling, rule_deleted, rule_paused

log = structlog.get_logger("wheelsched.shard")


class Adopt:
    """Adopts orphaned runs."""

    def __init__(self, context: Context, queues: Queues, request_builder: RequestBuilder) -> None:
        self._context = context
        self._config = context.config.recovery
        self._queues = queues
        self._request_builder = request_builder

    async def run(self) -> None:
        """Adopts until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_adopting_urgent())
            for _ in range(self._config.at_once):
                tasks.create_task(self._keep_adopting())
            tasks.create_task(self._take_abandoned())

    async def _keep_adopting_urgent(self) -> None:
        orphans = self._context.registry.orphans
        while True:
            await orphans.has_urgent.wait()
            await self._adopt_orphans(orphans.take_urgent)

    async def _keep_adopting(self) -> None:
        orphans = self._context.registry.orphans
        while True:
            await orphans.has_any.wait()
            await self._adopt_orphans(orphans.take_earliest)

    async def _adopt_orphans(self, take: Callable[[int], list[OrphanedJob]]) -> None:
        """Adopts a batch, which is taken after the lock, when no hand-over can intervene."""
        async with self._context.arming_lock.shared():
            jobs = take(self._config.batch)
            few = [job for job in jobs if len(job.keys) <= self._config.batch]
            await self.adopt([key for job in few for key in job.keys])
            await self._remind(few)
        for job in jobs:
            if len(job.keys) > self._config.batch:
                await self._adopt_large_job(job)
                await self._remind([job])

    async def _adopt_large_job(self, job: OrphanedJob) -> None:
        """Adopts a job with very many runs in steps, between which a hand-over may begin: while a
        hand-over waits, nothing is armed. The first pass adopts the live runs. When all of them are
        known, the second pass adopts those to send."""
        unsent: list[RunKey] = []
        for start in range(0, len(job.keys), self._config.batch):
            async with self._context.arming_lock.shared():
                with self._context.changes.recording():
                    part = job.keys[start : start + self._config.batch]
                    runs, jobs = await self._read_with_jobs(part)
                    unsent += [run.key for run in runs if self._is_sent_again(run)]
                    watched = [run for run in runs if not self._is_sent_again(run)]
                    await self._adopt_runs(watched, jobs)
        for start in range(0, len(unsent), self._config.batch):
            async with self._context.arming_lock.shared():
                await self.adopt(unsent[start : start + self._config.batch])

    def _is_sent_again(self, run: Run) -> bool:
        return run.state is RunState.ARMED or (
            run.state is RunState.RUNNING and self._is_forgotten(run)
        )

    async def _remind(self, jobs: Sequence[OrphanedJob]) -> None:
        """Puts back the due times and retries that waited for the adoption of their job."""
        for job in jobs:
            reminders = self._context.registry.orphans.adopted(job)
            async for some in yielding(self._context.clock, reminders):
                for reminder in some:
                    self._queues.upcoming.remind(job.job_id, reminder)

    async def adopt(self, keys: Sequence[RunKey]) -> None:
        """Adopts the runs that are still unfinished."""
        with self._context.changes.recording():
            lost = await self._adopt_runs(*await self._read_with_jobs(keys))
            if lost:
                await self._adopt_runs(*await self._read_with_jobs(lost))

    async def _read_with_jobs(
        self, keys: Sequence[RunKey], *, even_if_known: bool = False
    ) -> tuple[list[Run], list[Job]]:
        """Reads the runs to adopt and their jobs, at the same time.

        A job that changes in between is a recorded change, in whichever order they are read.
        """
        job_ids = {key.job_id for key in keys}
        async with asyncio.TaskGroup() as reads:
            runs = reads.create_task(self._read(keys, even_if_known=even_if_known))
            jobs = reads.create_task(self._request_builder.read_jobs(job_ids))
        return runs.result(), jobs.result()

    async def _read(self, keys: Sequence[RunKey], *, even_if_known: bool = False) -> list[Run]:
        """Reads the runs that are unfinished, ours, and unknown to this shard."""
        context = self._context
        checked: list[Checked] = []
        for start in range(0, len(keys), self._config.batch):
            part = keys[start : start + self._config.batch]
            checked += await context.store.revalidate(part)
        runs = [
            check.run
            for check in checked
            if check.run.state in UNFINISHED_STATES
            and context.ownership.holds(partition_of(check.run.job_id))
            and (even_if_known or not context.registry.knows(check.run.key))
        ]
        return sorted(runs, key=lambda run: (run.job_id.int, run.due_us))

    async def _adopt_runs(self, runs: Sequence[Run], jobs: Sequence[Job]) -> list[RunKey]:
        """Adopts runs; returns those it lost: their previous owner has settled them meanwhile."""
        by_id = {job.job_id: job for job in jobs}
        to_claim = []
        for run in runs:
            job = by_id.get(run.job_id)
            match run.state:
                case RunState.RETRYING:
                    self._adopt_retry(run)
                case RunState.RUNNING if job is None and self._is_carried(run):
                    pass  # it may be sent any moment; if its carrier dies, a later sweep finds it
                case RunState.RUNNING if job is not None and not self._is_forgotten(run):
                    self._adopt_running(job, run)
                case RunState.ARMED if job is not None and self._may_be_handed_out(job, run):
                    self._adopt_handed_out(job, run)
                case RunState.ARMED | RunState.RUNNING if job is not None:
                    to_claim.append((job, run))
                case _:
                    # Its job was deleted too late to withdraw it.
                    self._queues.results.put(rule_deleted(run))
        lost: list[RunKey] = []
        for start in range(0, len(to_claim), self._config.batch):
            lost += await self._claim(to_claim[start : start + self._config.batch])
        return lost

    def _is_forgotten(self, run: Run) -> bool:
        """Whether the database says that this shard has it, and this shard does not."""
        return run.http_status != ACCEPTED and run.shard == self._context.ownership.shard_id

    def _is_carried(self, run: Run) -> bool:
        """Whether another live shard carries it to its end."""
        return (
            run.http_status != ACCEPTED
            and run.shard != self._context.ownership.shard_id
            and run.shard in self._context.ownership.live_shards
        )

    def _adopt_retry(self, run: Run) -> None:
        if run.has_begun:
            assert run.token is not None
            self._context.registry.revive(run.key, run.token)
        if run.retry_at_us is not None:
            self._queues.upcoming.retries.put(Retry(run.key, run.retry_at_us))

    def _may_be_handed_out(self, job: Job, run: Run) -> bool:
        """Whether a worker that pulls may have it: it was due when its partition was gained, and
        its previous owner has not released it unsent."""
        if not isinstance(job.target, QueueTarget):
            return False
        ownership = self._context.ownership
        gained_us = self._context.clock.now_us() - ownership.gained_for_us(run.job_id)
        assert run.token is not None
        was_released = ownership.was_released(run.job_id, run.token)
        return _fire_at_us(job, run) <= gained_us and not was_released

    def _adopt_handed_out(self, job: Job, run: Run) -> None:
        """Adds a live run that a worker may have, under its old token."""
        assert run.token is not None
        armed = self._request_builder.prepare(job, run, run.token, _fire_at_us(job, run))
        if isinstance(armed, Ruling):
            self._queues.results.put(armed)
            return
        armed.version = OUTDATED  # it has no payload of its own
        self._context.registry.resume(armed)
        self._queues.handed_out.adopt(armed, self._context.ownership.now_us())

    def _adopt_running(self, job: Job, run: Run) -> None:
        """Adds a live run that a worker or another shard handles."""
        assert run.token is not None
        self._context.registry.revive(run.key, run.token)
        armed = self._request_builder.prepare(job, run, run.token, run.due_us)
        if isinstance(armed, Ruling):
            self._queues.results.put(armed)
        else:
            carrier = None if run.http_status == ACCEPTED else run.shard
            self._queues.accepted.put(ExternalRun(armed, is_adopted=True, carrier=carrier))

    async def _claim(self, orphaned: Sequence[tuple[Job, Run]]) -> set[RunKey]:
        """Claims armed runs and sends them, since they may or may not have been sent before.

        Returns those it lost. A run that was ruled, before or meanwhile, is not sent.
        """
        registry, ownership = self._context.registry, self._context.ownership
        adoptions = [
            Adoption(run.key, run.token or 0, ownership.next_token(run.job_id))
            for _, run in orphaned
            if ownership.holds(partition_of(run.job_id)) and run.key not in registry.rulings
        ]
        if not adoptions:
            return {run.key for _, run in orphaned}
        with registry.rulings.claiming(adoption.key for adoption in adoptions) as ruled:
            lost, _ = await self._context.store.adopt(adoptions)
            tokens = {adoption.key: adoption.token for adoption in adoptions}
            won = [(job, run) for job, run in orphaned if run.key in tokens and run.key not in lost]
            log.info("runs.adopted", count=len(won))
            self._send(await self._prepare(won, tokens), ruled)
        return {run.key for _, run in orphaned if run.key not in tokens} | lost

    async def _prepare(
        self, won: Sequence[tuple[Job, Run]], tokens: Mapping[RunKey, int]
    ) -> list[ArmedRun | Ruling]:
        followed = {
            run.key
            for (_, run), (_, later) in pairwise(won)
            if run.job_id == later.job_id and 0 < later.due_us - run.due_us <= SOON_US
        }
        is_idle = self._context.registry.is_idle
        behind = {run.key for _, run in won if not is_idle(run.job_id)}
        behind |= {
            later.key for (_, run), (_, later) in pairwise(won) if run.job_id == later.job_id
        }
        now_us = self._context.clock.now_us()
        runs = await self._request_builder.with_payloads([run for _, run in won])
        prepared: list[ArmedRun | Ruling] = []
        jobs = [job for job, _ in won]
        async for some in yielding(
            self._context.clock, list(zip(jobs, runs, strict=True)), self._config.build_slice
        ):
            for job, run in some:
                is_behind = run.key in behind
                made = self._prepare_one(job, run, tokens[run.key], now_us, is_behind=is_behind)
                if isinstance(made, ArmedRun):
                    made.is_followed = run.key in followed
                prepared.append(made)
        return prepared

    def _prepare_one(
        self, job: Job, run: Run, token: int, now_us: int, *, is_behind: bool
    ) -> ArmedRun | Ruling:
        """Applies a pause of the job, and the misfire policy if the run is known to be unsent;
        otherwise it is sent."""
        adopted = replace(run, lane=adopted_lane(run, job, now_us), token=token)
        if _is_paused(job, run):
            return rule_paused(adopted)
        if self._may_misfire(job, run) and not self._has_reached_queue(job, run, is_behind):
            schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
            reason = misfire.skip_reason(job.misfire, schedule, run.due_us, now_us)
            if reason is not None:
                return Ruling(key=run.key, token=token, state=RunState.SKIPPED, skip_reason=reason)
        return self._request_builder.prepare(job, adopted, token)

    def _may_misfire(self, job: Job, run: Run) -> bool:
        """Whether a run was armed for its due time, and released unsent by its previous owner.

        A run in the late lane has passed misfire before, or a person has retried it. If the job was
        paused or edited since, it is unknown whether a later due time fires.
        """
        return (
            run.state is RunState.ARMED
            and job.state is JobState.ACTIVE
            and job.updated_at_us <= run.due_us
            and run.trigger is Trigger.SCHEDULE
            and run.lane is Lane.ON_TIME
            and not run.has_begun
            and run.token is not None
            and self._context.ownership.was_released(run.job_id, run.token)
        )

    def _has_reached_queue(self, job: Job, run: Run, is_behind: bool) -> bool:
        """Whether a run waited for a worker when its previous owner released it. It was on time.

        With overlap `queue`, one that is behind another run of its job may have waited for that.
        """
        if not isinstance(job.target, QueueTarget):
            return False
        if is_behind and job.overlap.policy is OnOverlap.QUEUE:
            return False
        assert run.token is not None
        ownership = self._context.ownership
        return ownership.was_released_after(run.job_id, run.token, _fire_at_us(job, run))

    def _send(self, prepared: Sequence[ArmedRun | Ruling], ruled: Collection[RunKey]) -> None:
        """Arms runs in one loop iteration, so that runs of one route share few requests."""
        for run in prepared:
            if run.key in ruled:
                cancelled = Ruling(key=run.key, token=run.token, state=RunState.CANCELLED)
                self._queues.results.put(cancelled)
                continue
            if isinstance(run, Ruling):
                self._queues.results.put(run)
                continue
            if not run.is_first:
                self._context.registry.revive(run.key, run.token)
            self._context.doubts.vouch(run)
            if self._context.registry.arm_again(run):
                self._queues.doubtful.put(run)

    async def _take_abandoned(self) -> None:
        """Adopts the runs that dead shards carried."""
        while True:
            runs = await self._queues.abandoned.take(self._config.batch)
            async with self._context.arming_lock.shared():
                with self._context.changes.recording():
                    over = await self._adopt_abandoned(runs)
            for key in over:
                self._context.registry.end(key)

    async def _adopt_abandoned(self, runs: Sequence[Run]) -> set[RunKey]:
        """Adopts runs that are abandoned; returns those that have ended or are not ours."""
        jobs = await self._request_builder.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        for run in runs:
            if run.job_id not in by_id:
                self._queues.results.put(rule_deleted(run))
        carried = [(by_id[run.job_id], run) for run in runs if run.job_id in by_id]
        lost = await self._claim(carried)  # they stay live meanwhile
        going_on, jobs = await self._read_with_jobs(sorted(lost), even_if_known=True)
        await self._adopt_runs(going_on, jobs)
        return lost - {run.key for run in going_on}


def _is_paused(job: Job, run: Run) -> bool:
    """Whether a run of a queue ends because its job is paused, as *revalidate* decides it: of a run
    that was due, the API cannot know whether a worker has it. One that was requested or retried
    goes on."""
    return (
        job.state is JobState.PAUSED
        and isinstance(job.target, QueueTarget)
        and run.state is RunState.ARMED
        and run.trigger is Trigger.SCHEDULE
        and run.attempt == 0
        and run.retry_at_us is None
    )


def _fire_at_us(job: Job, run: Run) -> int:
    """When the attempt of an armed run was to be sent."""
    return planned_us(job, run) if run.retry_at_us is None else run.retry_at_us
