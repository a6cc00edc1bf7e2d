"""Stage *arm*: what comes due within the lead is claimed, and its request made ready.

Invariant: a run is handed to fire only when its claim has committed under our lease, and the next
due time of its job is computed from the one that was claimed, never from now.

What is most urgent goes first. A crowded second is begun early and armed in batches sorted by job
id, at a pace that leaves the database time for the rest. When time is short two batches are under
way at once: while the database claims one, the requests of another are made here.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import count
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core import misfire
from wheelsched.core.compile import compile_schedule
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.core.model import Job, JobState, Run, RunKey, RunState
from wheelsched.ports import NEVER_US, Claim, ClaimedRetry, ClaimedRun, Retry
from wheelsched.shard.armed import SOON_US, ArmedRun
from wheelsched.shard.claims import Claims
from wheelsched.shard.context import Context
from wheelsched.shard.due_times import ROOM, DueTimes
from wheelsched.shard.lead import ArmingRate, Lead, look_ahead
from wheelsched.shard.left_behind import Reminder
from wheelsched.shard.portions import in_portions
from wheelsched.shard.preparation import Preparation
from wheelsched.shard.reports import Ruling
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000
SMALL_BATCH = 250  # while there is no crowd: what one batch takes at once makes the others late
PORTION = ROOM  # taken from the wheel at once, to be sorted
STEP_US = 100 * MILLISECOND  # what is due within one step of the lead is armed together
FORECAST_S = 120  # half a million take about a minute
FORECAST_EVERY_US = SECOND
DECIDE_TURN = 60  # jobs decided about in one turn of the loop
TURN = 20  # requests prepared in one turn of the loop
ARMED_PER_JOB = 20_000  # beyond it retries and requested runs of the job are held back
ARMED_BYTES_PER_JOB = 64 << 20  # and beyond that, by their requests
ARMED_AT_LEAST = 100
ARMED_SINGLY = 50  # places beside, for what comes singly: a trigger passes a backlog of backfills
AT_ONCE = 2  # batches under way when time is short
BEHIND_AT_ONCE = 4  # and when it has run out: most of what a batch takes is waiting
URGENT_US = 2 * SECOND  # what is due within it, or the least lead, is armed without a rest


class Outlets(Struct, frozen=True):
    """Where jobs and runs go from here."""

    fire: Callable[[ArmedRun], None]
    reload: Callable[[UUID], None]  # a job whose timer is not where we thought
    look_again: Callable[[Collection[RunKey]], None]  # runs that are not as we thought
    ending: Callable[[UUID], None]  # jobs without a further due time
    settle: Callable[[Ruling], None]


class Prospect(Struct, frozen=True, gc=False):
    """What a claim makes of one job, if it wins."""

    job: Job
    claim: Claim
    fires: tuple[misfire.Fire, ...]


class Arm:
    """Arms runs ahead of their time."""

    def __init__(
        self,
        context: Context,
        due_times: DueTimes,
        retries: Retries,
        preparation: Preparation,
        outlets: Outlets,
    ) -> None:
        self._context = context
        self._due_times = due_times
        self._retries = retries
        self._preparation = preparation
        self._outlets = outlets
        self._rate = ArmingRate(context.config.lead)
        self._lead = Lead(context.config.lead.least_us)
        self._urgent_us = max(URGENT_US, context.config.lead.least_us)
        self._forecast_us = 0  # when the lead was computed last
        self._released_us = 0  # when retries that were held back were last looked at
        self._chunks: list[tuple[int, int, list[tuple[UUID, int]]]] = []
        self._gathered: set[tuple[UUID, int]] = set()  # what is in them
        self._numbers = count()
        self._batches: set[asyncio.Task[None]] = set()  # under way
        self._claimed: set[UUID] = set()  # the jobs in them
        self._woken = asyncio.Event()
        self._alarm = context.clock.alarm(self._woken.set)

    def wake(self) -> None:
        """There may be something more urgent than was known."""
        self._woken.set()

    async def run(self) -> None:
        """Arms until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._woken.clear()
                    if self._context.tenure.is_trusted:
                        await self._round(tasks)
                    else:
                        await self._context.clock.sleep(STEP_US * 1_000)
        finally:
            self._alarm.close()

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        """Arms the most urgent batch, or waits for one."""
        now_us = self._context.clock.now_us()
        self._look_ahead(now_us)
        self._gather(now_us)
        self._release(now_us)
        waiting = self._retries.take(now_us + self._lead.us, min(BATCH, self._room_for_retries))
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
            while len(self._batches) >= (BEHIND_AT_ONCE if is_behind else AT_ONCE):
                await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)
            return
        began_us = self._context.tenure.now_us()
        await asyncio.wait(self._batches)
        if chunk and min(due_us for _, due_us in chunk) > now_us + self._urgent_us:
            took_us = self._context.tenure.now_us() - began_us
            await self._wait_until(self._context.clock.now_us() + took_us)

    async def _arm_batch(self, waiting: Sequence[Retry], chunk: Sequence[tuple[UUID, int]]) -> None:
        began_us = self._context.tenure.now_us()
        async with self._context.arming.passing():
            with self._context.changes.kept():
                await self._arm_retries(waiting)
            with self._context.changes.kept():
                claimed = await self._arm(chunk)
        ended_us = self._context.tenure.now_us()
        self._rate.measured(claimed, began_us, ended_us)
        self._context.vitals.store.arms.observe(ended_us - began_us, len(chunk) + len(waiting))

    @property
    def _room(self) -> int:
        """How many more runs may be armed."""
        return max(self._context.config.max_armed - self._context.unfinished.armed_count, 0)

    @property
    def _room_for_retries(self) -> int:
        """Half of all: runs that were asked for may wait for very long, and timers may not."""
        room = self._context.config.max_armed // 2 - self._context.unfinished.armed_count
        return max(room, 0)

    def _look_ahead(self, now_us: int) -> None:
        if now_us - self._forecast_us >= FORECAST_EVERY_US or now_us < self._forecast_us:
            forecast = self._due_times.forecast(now_us, FORECAST_S)
            for due_us, _, chunk in self._chunks:
                second = max(due_us - now_us, 0) // SECOND
                forecast[min(second, FORECAST_S - 1)] += len(chunk)
            self._lead = look_ahead(forecast, self._rate.per_second, self._context.config.lead)
            self._forecast_us = now_us

    def _gather(self, now_us: int) -> None:
        """Takes from the wheel what the lead reaches, and cuts it into batches."""
        most = min(PORTION if len(self._chunks) < PORTION // BATCH else BATCH, self._room)
        if not most:
            return
        taken = self._due_times.take(now_us + self._lead.us + STEP_US, most)
        # A load brings again what was taken from the wheel and is not claimed yet.
        taken = [due for due in taken if due not in self._gathered]
        self._gathered.update(taken)
        taken.sort(key=lambda due: due[0].int)
        size = BATCH if len(taken) > BATCH else SMALL_BATCH
        for start in range(0, len(taken), size):
            chunk = taken[start : start + size]
            earliest_us = min(due_us for _, due_us in chunk)
            heapq.heappush(self._chunks, (earliest_us, next(self._numbers), chunk))

    def _release(self, now_us: int) -> None:
        """Lets go of retries that were held back, where half of the room of their job is free."""
        if 0 <= now_us - self._released_us < STEP_US:
            return
        self._released_us = now_us
        for job_id in tuple(self._retries.held_jobs):
            most = self._most_armed(job_id)
            room = most - self._context.unfinished.count_armed(job_id)
            if room >= most // 2:
                self._retries.release(job_id, room)

    def _most_armed(self, job_id: UUID) -> int:
        """How many runs of a job may be armed at a time. Its requests are about equally long."""
        sample = self._context.unfinished.any_armed(job_id)
        if sample is None:
            return ARMED_PER_JOB
        fitting = ARMED_BYTES_PER_JOB // max(len(sample.prepared.content), 1)
        return min(max(fitting, ARMED_AT_LEAST), ARMED_PER_JOB)

    def _hold_back(self, waiting: Sequence[Retry]) -> list[Retry]:
        """Those that are to be claimed. The others wait until their job has room: a backlog of one
        job fills neither the memory nor the room of all others.

        A further attempt of a live run is never held back: the others may wait for its end.
        """
        unfinished = self._context.unfinished
        together = Counter([retry.key.job_id for retry in waiting])
        room = {
            job_id: self._most_armed(job_id)
            + (ARMED_SINGLY if count <= ARMED_SINGLY else 0)
            - unfinished.count_armed(job_id)
            for job_id, count in together.items()
        }
        claimed = []
        for retry in waiting:
            job_id = retry.key.job_id
            if room[job_id] > 0 or unfinished.is_live(retry.key):
                room[job_id] -= 1
                claimed.append(retry)
            else:
                self._retries.hold_back(retry)
        return claimed

    def _next_us(self, now_us: int) -> int:
        """When there is something to arm, or a crowd may have come into sight."""
        due_us = self._due_times.next_us()
        retry_us = self._retries.next_us() if self._room_for_retries else None
        wanted_us = [
            next_us - self._lead.us for next_us in (due_us, retry_us) if next_us is not None
        ]
        if self._retries.held_jobs or not self._room_for_retries:
            wanted_us.append(now_us + STEP_US)
        if due_us is not None:
            in_sight_us = due_us - FORECAST_S * SECOND
            wanted_us.append(max(in_sight_us, now_us + FORECAST_EVERY_US))
        soonest_us = now_us + (MILLISECOND if self._room else STEP_US)
        return max(min(wanted_us, default=NEVER_US // 1_000), soonest_us)

    async def _wait_until(self, when_us: int) -> None:
        self._alarm.set(when_us * 1_000)
        await self._woken.wait()

    async def _arm(self, chunk: Sequence[tuple[UUID, int]]) -> int:
        """Claims the due times of a batch, and prepares what was won; gives how many it claimed."""
        due_us = {job_id: due for job_id, due in chunk if self._may_claim(job_id, due)}
        if not due_us:
            return 0
        self._claimed |= due_us.keys()
        try:
            await self._claim(due_us)
        finally:
            self._claimed -= due_us.keys()
        return len(due_us)

    def _may_claim(self, job_id: UUID, wanted: Reminder) -> bool:
        """Whether a job is ours to arm.

        One that is being claimed is looked at again after that; one of which anything was left
        behind, when that was taken up.
        """
        if job_id in self._claimed:
            self._outlets.reload(job_id)
            return False
        if not self._context.tenure.may_arm(job_id):
            return False
        return not self._context.unfinished.left.want(job_id, wanted)

    async def _claim(self, due_us: dict[UUID, int]) -> None:
        jobs = [
            job
            for job in await self._preparation.read_jobs(due_us.keys())
            if job.state is JobState.ACTIVE
        ]
        clock = self._context.clock
        prospects: list[Prospect] = []
        async for portion in in_portions(clock, jobs, DECIDE_TURN):
            prospects += self._foresee(portion, due_us)
        claims = Claims(self._context)
        lost = await claims.arm([prospect.claim for prospect in prospects]) if prospects else set()
        self._count(prospects, lost)
        async for won in in_portions(clock, prospects, TURN):
            for prospect in won:
                self._follow(prospect, lost, claims.refused)

    def _foresee(self, jobs: Sequence[Job], due_us: dict[UUID, int]) -> list[Prospect]:
        now_us = self._context.clock.now_us()
        prospects = []
        for job in jobs:
            try:
                prospects.append(self._foresee_one(job, due_us[job.job_id], now_us))
            except Exception:
                log.exception("job.set_aside", job_id=str(job.job_id))
                self._set_aside(job.job_id)
        return prospects

    def _set_aside(self, job_id: UUID) -> None:
        """Looks at a job again later: its timer stays, and nothing of it is lost."""
        now_us = self._context.clock.now_us()
        self._due_times.move(job_id, now_us + self._context.config.refresh_us)

    def _foresee_one(self, job: Job, due_us: int, now_us: int) -> Prospect:
        schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
        decision = misfire.decide(job.misfire, schedule, due_us, now_us)
        tenure = self._context.tenure
        runs = tuple(
            ClaimedRun(fire.due_us, tenure.next_token(job.job_id), fire.lane)
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
        return Prospect(job, claim, decision.fires)

    def _count(self, prospects: Sequence[Prospect], lost: set[RunKey]) -> None:
        runs = self._context.vitals.runs
        for prospect in prospects:
            claim = prospect.claim
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

    def _follow(self, prospect: Prospect, lost: set[RunKey], refused: set[RunKey]) -> None:
        """Hands the runs that were won to fire, and puts the next due time in its place."""
        job, claim = prospect.job, prospect.claim
        next_due_us = claim.next_due_us
        for fire, claimed in zip(prospect.fires, claim.runs, strict=True):
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
        if self._is_lost(claim, lost) or self._context.changes.concern(job.job_id):
            self._outlets.reload(job.job_id)
            return
        if next_due_us is None:
            self._due_times.move(job.job_id, None)  # where a load from before may have put it
            self._outlets.ending(job.job_id)
        else:
            horizon_us = self._context.clock.now_us() + self._context.config.horizon_us
            is_near = next_due_us <= horizon_us
            self._due_times.move(job.job_id, next_due_us if is_near else None)

    def _prepare(
        self, job: Job, run: Run, token: int, fire_at_us: int, *, is_followed: bool = False
    ) -> None:
        prepared = self._preparation.prepare(job, run, token, fire_at_us)
        if isinstance(prepared, Ruling):
            self._outlets.settle(prepared)
        else:
            prepared.is_followed = is_followed
            self._outlets.fire(prepared)

    async def _arm_retries(self, waiting: Sequence[Retry]) -> None:
        """Claims further attempts, and those that people asked for.

        There is no other attempt of a run that was given up before, or while it was claimed.
        """
        tenure, unfinished = self._context.tenure, self._context.unfinished
        claims = [
            ClaimedRetry(retry.key, retry.retry_at_us, tenure.next_token(retry.key.job_id))
            for retry in self._hold_back(waiting)
            if tenure.may_arm(retry.key.job_id)
            and not unfinished.put_off(retry.key)
            and not unfinished.left.want(retry.key.job_id, retry)
        ]
        if not claims:
            return
        with unfinished.claiming(claim.key for claim in claims) as given_up:
            await self._claim_retries(claims, given_up)

    async def _claim_retries(
        self, claims: Sequence[ClaimedRetry], given_up: Collection[RunKey]
    ) -> None:
        sent = Claims(self._context)
        runs = await self._preparation.with_payloads(await sent.arm_retries(claims))
        won = {run.key for run in runs}
        lost = {claim.key for claim in claims} - won - sent.refused
        for job_id in {key.job_id for key in lost}:
            self._outlets.reload(job_id)
        self._outlets.look_again(lost)
        jobs = await self._preparation.read_jobs({run.job_id for run in runs})
        by_id = {job.job_id: job for job in jobs}
        times_us = {claim.key: claim.retry_at_us for claim in claims}
        async for portion in in_portions(self._context.clock, runs, TURN):
            for run in portion:
                assert run.token
                if run.job_id in by_id and run.key not in given_up:
                    self._prepare(by_id[run.job_id], run, run.token, times_us[run.key])
                else:  # deleted, or given up, while an attempt was under way: there is no other
                    cancelled = Ruling(key=run.key, token=run.token, state=RunState.CANCELLED)
                    self._outlets.settle(cancelled)
