"""Stage *arm*: claims the runs that come due within the lead, and builds their requests.

Invariant: *arm* hands a run to *fire* only after its claim has committed under our lease. The next
due time of a job is computed from the one that was claimed, never from now.

The most urgent batch goes first. *Arm* starts early on a hot second, in batches sorted by job id,
and rests between them to leave the database time for other work. When time is short, two batches
overlap: while the database claims one, the shard builds the requests of the other.
"""

import asyncio
import heapq
from collections.abc import Sequence
from itertools import count
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core.model import Job, JobState, Run, RunKey, RunState
from wheelsched.core.policies import misfire
from wheelsched.flow import yielding
from wheelsched.ports import NEVER_US, Claim, ClaimedRun, Retry
from wheelsched.schedule.compile import compile_schedule
from wheelsched.shard.arming.arm_retries import ArmRetries
from wheelsched.shard.arming.lead import ArmingRate, Lead, look_ahead
from wheelsched.shard.arming.request_builder import RequestBuilder
from wheelsched.shard.context import Context
from wheelsched.shard.loading.upcoming import ROOM
from wheelsched.shard.queues import Queues
from wheelsched.shard.runs.armed_run import SOON_US
from wheelsched.shard.settling.results import Ruling
from wheelsched.values.duration import MILLISECOND, SECOND

log = structlog.get_logger("wheelsched.shard")


class Proposal(Struct, frozen=True, gc=False):
    """The claim for one job, and the runs that it arms if it wins."""

    job: Job
    claim: Claim
    fires: tuple[misfire.Fire, ...]


class Arm:
    """Arms runs ahead of their time."""

    def __init__(self, context: Context, queues: Queues, request_builder: RequestBuilder) -> None:
        self._context = context
        self._config = context.config.arm
        self._queues = queues
        self._due_times = queues.upcoming.due_times
        self._retries = queues.upcoming.retries
        self._woken = queues.upcoming.changed
        self._request_builder = request_builder
        self._arm_retries = ArmRetries(context, queues, request_builder)
        self._rate = ArmingRate(context.config.lead)
        self._lead = Lead(context.config.lead.least_us)
        self._urgent_us = max(self._config.urgent_us, context.config.lead.least_us)
        self._forecast_us = 0  # when the lead was last computed
        self._released_us = 0  # when held retries were last checked
        self._chunks: list[tuple[int, int, list[tuple[UUID, int]]]] = []
        self._gathered: set[tuple[UUID, int]] = set()  # the due times in them
        self._numbers = count()
        self._batches: set[asyncio.Task[None]] = set()  # in progress
        self._claimed: set[UUID] = set()  # the jobs in them
        self._alarm = context.clock.alarm(self._woken.set)

    async def run(self) -> None:
        """Arms until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._woken.clear()
                    if self._context.ownership.is_trusted:
                        await self._round(tasks)
                    else:
                        await self._context.clock.sleep(self._config.step_us * 1_000)
        finally:
            self._alarm.close()

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        """Arms the most urgent batch, or waits for one."""
        now_us = self._context.clock.now_us()
        self._look_ahead(now_us)
        self._gather(now_us)
        self._release_retries(now_us)
        waiting = self._retries.take(now_us + self._lead.us, self._config.batch)
        chunk = heapq.heappop(self._chunks)[2] if self._chunks else []
        self._gathered.difference_update(chunk)
        if not waiting and not chunk:
            await self._wait_until(self._next_us(now_us))
            return
        batch = tasks.create_task(self._arm_batch(waiting, chunk))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)
        if self._chunks and (self._lead.is_hasty or self._chunks[0][0] <= now_us + self._urgent_us):
            is_behind = self._chunks[0][0] <= now_us + self._urgent_us * 3 // 4
            while len(self._batches) >= (
                self._config.behind_at_once if is_behind else self._config.at_once
            ):
                await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)
            return
        began_us = self._context.ownership.now_us()
        await asyncio.wait(self._batches)
        if chunk and min(due_us for _, due_us in chunk) > now_us + self._urgent_us:
            took_us = self._context.ownership.now_us() - began_us
            await self._wait_until(self._context.clock.now_us() + took_us)

    async def _arm_batch(self, waiting: Sequence[Retry], chunk: Sequence[tuple[UUID, int]]) -> None:
        began_us = self._context.ownership.now_us()
        async with self._context.arming_lock.shared():
            if waiting:
                with self._context.changes.recording():
                    await self._arm_retries.arm(waiting, self._room_for_retries)
            with self._context.changes.recording():
                claimed = await self._arm(chunk)
        ended_us = self._context.ownership.now_us()
        self._rate.measured(claimed, began_us, ended_us)
        self._context.vitals.store.arms.observe(ended_us - began_us, len(chunk) + len(waiting))

    @property
    def _room(self) -> int:
        """How many more runs may be armed."""
        return max(self._context.config.max_armed - self._context.registry.armed_count, 0)

    @property
    def _room_for_retries(self) -> int:
        """How many requested runs may be armed. At most half of the space: they may wait
        for long, and timers may not."""
        room = self._context.config.max_armed // 2 - self._context.registry.armed_count
        return max(room, 0)

    def _look_ahead(self, now_us: int) -> None:
        if (
            now_us - self._forecast_us >= self._config.forecast_every_us
            or now_us < self._forecast_us
        ):
            forecast = self._due_times.forecast(now_us, self._config.forecast_s)
            for due_us, _, chunk in self._chunks:
                second = max(due_us - now_us, 0) // SECOND
                forecast[min(second, self._config.forecast_s - 1)] += len(chunk)
            self._lead = look_ahead(forecast, self._rate.per_second, self._context.config.lead)
            self._forecast_us = now_us

    def _gather(self, now_us: int) -> None:
        """Takes the due times within the lead from the wheel, and cuts them into batches."""
        most = min(
            ROOM if len(self._chunks) < ROOM // self._config.batch else self._config.batch,
            self._room,
        )
        if not most:
            return
        taken = self._due_times.take(now_us + self._lead.us + self._config.step_us, most)
        # A load may return due times that were taken from the wheel and are not claimed yet.
        taken = [due for due in taken if due not in self._gathered]
        self._gathered.update(taken)
        taken.sort(key=lambda due: due[0].int)
        size = self._config.batch if len(taken) > self._config.batch else self._config.small_batch
        for start in range(0, len(taken), size):
            chunk = taken[start : start + size]
            earliest_us = min(due_us for _, due_us in chunk)
            heapq.heappush(self._chunks, (earliest_us, next(self._numbers), chunk))

    def _release_retries(self, now_us: int) -> None:
        if not 0 <= now_us - self._released_us < self._config.step_us:
            self._released_us = now_us
            if self._retries.held_jobs:
                self._arm_retries.release_held(self._room_for_retries)

    def _next_us(self, now_us: int) -> int:
        """When there is something to arm, or when a hot second may have come into sight."""
        due_us = self._due_times.next_us()
        retry_us = self._retries.next_us()
        wanted_us = [
            next_us - self._lead.us for next_us in (due_us, retry_us) if next_us is not None
        ]
        if self._retries.held_jobs:
            wanted_us.append(now_us + self._config.step_us)
        if due_us is not None:
            in_sight_us = due_us - self._config.forecast_s * SECOND
            wanted_us.append(max(in_sight_us, now_us + self._config.forecast_every_us))
        soonest_us = now_us + (MILLISECOND if self._room else self._config.step_us)
        return max(min(wanted_us, default=NEVER_US // 1_000), soonest_us)

    async def _wait_until(self, when_us: int) -> None:
        self._alarm.set(when_us * 1_000)
        await self._woken.wait()

    async def _arm(self, chunk: Sequence[tuple[UUID, int]]) -> int:
        """Claims a batch of due times, and builds the runs it won; returns how many it claimed."""
        due_us = self._sort_out(chunk)
        if not due_us:
            return 0
        self._claimed |= due_us.keys()
        try:
            await self._claim(due_us)
        finally:
            self._claimed -= due_us.keys()
        return len(due_us)

    def _sort_out(self, chunk: Sequence[tuple[UUID, int]]) -> dict[UUID, int]:
        """The jobs of a batch that can be claimed now.

        A job that is being claimed is reloaded; a job with orphans waits for their adoption.
        """
        ownership, orphans = self._context.ownership, self._context.registry.orphans
        due_us: dict[UUID, int] = {}
        for job_id, due in chunk:
            if job_id in self._claimed:
                self._queues.reloads.put(job_id)
            elif not ownership.may_arm(job_id):
                pass  # another shard owns it, or its unfinished runs are not known yet
            elif job_id in orphans.jobs:
                orphans.prioritize(job_id, due)
            else:
                due_us[job_id] = due
        return due_us

    async def _claim(self, due_us: dict[UUID, int]) -> None:
        jobs = [
            job
            for job in await self._request_builder.read_jobs(due_us.keys())
            if job.state is JobState.ACTIVE
        ]
        clock = self._context.clock
        proposals: list[Proposal] = []
        async for some in yielding(clock, jobs, self._config.decide_slice):
            proposals += self._propose(some, due_us)
        if not proposals:
            return
        lost, refused = await self._context.store.arm([each.claim for each in proposals])
        self._count(proposals, lost)
        async for won in yielding(clock, proposals, self._config.build_slice):
            for proposal in won:
                self._apply(proposal, lost, refused)

    def _propose(self, jobs: Sequence[Job], due_us: dict[UUID, int]) -> list[Proposal]:
        now_us = self._context.clock.now_us()
        proposals = []
        for job in jobs:
            try:
                proposals.append(self._propose_claim(job, due_us[job.job_id], now_us))
            except Exception:
                log.exception("job.set_aside", job_id=str(job.job_id))
                self._set_aside(job.job_id)
        return proposals

    def _set_aside(self, job_id: UUID) -> None:
        """Tries a job again later. Its timer stays in the database, so no run is lost."""
        now_us = self._context.clock.now_us()
        self._due_times.move(job_id, now_us + self._context.config.refresh_us)

    def _propose_claim(self, job: Job, due_us: int, now_us: int) -> Proposal:
        schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
        decision = misfire.decide(job.misfire, schedule, due_us, now_us)
        ownership = self._context.ownership
        runs = tuple(
            ClaimedRun(fire.due_us, ownership.next_token(job.job_id), fire.lane)
            for fire in decision.fires
        )
        claim = Claim(
            job_id=job.job_id,
            tenant_id=job.tenant_id,
            version=job.version,
            due_us=due_us,
            next_due_us=decision.next_due_us,
            runs=runs,
            skip=decision.skip,
        )
        return Proposal(job, claim, decision.fires)

    def _count(self, proposals: Sequence[Proposal], lost: set[RunKey]) -> None:
        runs = self._context.vitals.runs
        for proposal in proposals:
            claim = proposal.claim
            runs.entered[RunState.ARMED] += len(claim.runs)
            if lost:
                keys = (RunKey(claim.job_id, run.due_us) for run in claim.runs)
                runs.entered[RunState.ARMED] -= sum(key in lost for key in keys)
            if claim.skip is not None and claim.key not in lost:
                runs.entered[RunState.SKIPPED] += 1
                runs.skipped[claim.skip.reason] += claim.skip.count

    @staticmethod
    def _is_lost(claim: Claim, lost: set[RunKey]) -> bool:
        return claim.key in lost or any(
            RunKey(claim.job_id, run.due_us) in lost for run in claim.runs
        )

    def _apply(self, proposal: Proposal, lost: set[RunKey], refused: set[RunKey]) -> None:
        """Hands the runs that were won to *fire*, and moves the job to its next due time."""
        job, claim = proposal.job, proposal.claim
        next_due_us = claim.next_due_us
        for fire, claimed in zip(proposal.fires, claim.runs, strict=True):
            if RunKey(job.job_id, fire.due_us) not in lost:
                run = Run(
                    job_id=job.job_id,
                    due_us=fire.due_us,
                    tenant_id=job.tenant_id,
                    state=RunState.ARMED,
                    lane=fire.lane,
                )
                is_followed = next_due_us is not None and next_due_us - fire.due_us <= SOON_US
                self._prepare(job, run, claimed.token, fire.fire_at_us, is_followed=is_followed)
        if claim.key in refused:
            self._set_aside(job.job_id)
            return
        if self._is_lost(claim, lost) or self._context.changes.may_affect(job.job_id):
            self._queues.reloads.put(job.job_id)
            return
        if next_due_us is None:
            self._due_times.move(job.job_id, None)  # an earlier load may have put it back
            self._queues.ending.put(job.job_id)
        else:
            horizon_us = self._context.clock.now_us() + self._context.config.horizon_us
            is_near = next_due_us <= horizon_us
            self._due_times.move(job.job_id, next_due_us if is_near else None)

    def _prepare(
        self, job: Job, run: Run, token: int, fire_at_us: int, *, is_followed: bool = False
    ) -> None:
        prepared = self._request_builder.prepare(job, run, token, fire_at_us)
        if isinstance(prepared, Ruling):
            self._queues.results.put(prepared)
        else:
            prepared.is_followed = is_followed
            self._context.doubts.vouch(prepared)
            self._context.registry.arm(prepared)
