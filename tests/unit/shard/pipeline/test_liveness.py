"""After random changes and failures have stopped, every job keeps running.

Each seed is a minute and a half of cancels, retries, edits, pauses, requests, missed hints, crashes
and hand-overs, with jobs of every policy; then a time without any.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import pytest
from msgspec.structs import replace
from tests.marks import first_cases
from tests.unit.shard.world import World

from wheelsched.config import FairnessConfig, ShardConfig
from wheelsched.core.model import FINAL_STATES, Job, JobState, Run, RunKey, RunState, Trigger
from wheelsched.core.outcome import Failed, Outcome, Rejected, Succeeded
from wheelsched.core.policies.policy import (
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.errors import WheelschedError
from wheelsched.ports import Callback, RequestedRun, Route
from wheelsched.schedule.compile import compile_schedule
from wheelsched.testing.dispatcher import succeed
from wheelsched.values.duration import MINUTE, SECOND

CHANGES = 90
CALM_S = 200
NARROW = ShardConfig(fairness=FairnessConfig(in_flight_per_origin=3))
Change: TypeAlias = Callable[[], Awaitable[object]]


class Meddler:
    """Makes random changes to a world, by its seed."""

    def __init__(self, world: World, jobs: Sequence[Job]) -> None:
        self._world = world
        self._random = world.random
        self._jobs = jobs
        self._changes: tuple[Change, ...] = (
            *(self.cancel, self.retry) * 3,
            *(self.cancel_and_retry, self.request) * 2,
            *(self.edit, self.pause, self.resume, self.miss_hints, self.kill, self.hand_over),
        )

    async def meddle(self) -> None:
        for _ in range(CHANGES):
            await self._world.advance(self._random.uniform(0.02, 2))
            with suppress(WheelschedError):  # it was too late for that, or too early
                await self._random.choice(self._changes)()
        self._world.handler = succeed
        self._world.link.is_deaf = False
        for job in self._jobs:
            await self._resume(job)

    async def work(self, _: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        """A worker that succeeds or fails, quickly or slowly."""
        await self._world.clock.sleep(self._random.choice((0, 0, 1, 4)) * SECOND * 1_000)
        outcome = self._random.choice(
            (
                *(Succeeded(http_status=200),) * 3,
                Failed(error="busy", http_status=503),
                Rejected(error="never", http_status=400),
            )
        )
        return [outcome] * len(callbacks)

    async def cancel(self) -> None:
        if runs := await self._runs(lambda run: run.state not in FINAL_STATES):
            await self._world.store.history.cancel(
                self._world.caller, self._random.choice(runs).key
            )

    async def retry(self) -> None:
        if runs := await self._runs(lambda run: run.state in (RunState.DEAD, RunState.CANCELLED)):
            key = self._random.choice(runs).key
            await self._world.store.history.retry(self._world.caller, [key])

    async def cancel_and_retry(self) -> None:
        if runs := await self._runs(lambda run: run.state not in FINAL_STATES):
            key = self._random.choice(runs).key
            await self._world.store.history.cancel(self._world.caller, key)
            await self._world.store.history.retry(self._world.caller, [key])

    async def request(self) -> None:
        trigger = self._random.choice((Trigger.MANUAL, Trigger.BACKFILL))
        key = RunKey(self._random.choice(self._jobs).job_id, self._world.now_us() + 1)
        await self._world.store.history.request(
            self._world.caller, [RequestedRun(key=key, trigger=trigger)]
        )

    async def edit(self) -> None:
        job = await self._any_job()
        edited = replace(job, version=job.version + 1, priority=self._random.randrange(10))
        await self._world.store.jobs.edit(self._world.caller, edited, None, is_rescheduled=False)

    async def pause(self) -> None:
        await self._world.store.jobs.pause(self._world.caller, (await self._any_job()).job_id)

    async def resume(self) -> None:
        await self._resume(self._random.choice(self._jobs))

    async def miss_hints(self) -> None:
        self._world.link.is_deaf = not self._world.link.is_deaf

    async def kill(self) -> None:
        await self._world.kill("a")
        self._world.start("a", NARROW)

    async def hand_over(self) -> None:
        if "b" in self._world.shards:
            await self._world.stop("b")
        else:
            self._world.start("b", NARROW)

    async def _resume(self, job: Job) -> None:
        schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
        due_us = schedule.next_after(self._world.now_us())
        await self._world.store.jobs.resume(self._world.caller, job.job_id, due_us)

    async def _any_job(self) -> Job:
        job_id = self._random.choice(self._jobs).job_id
        return await self._world.store.jobs.get(self._world.caller, job_id)

    async def _runs(self, is_wanted: Callable[[Run], bool]) -> list[Run]:
        """The runs of all jobs in the last minute."""
        since_us = self._world.now_us() - MINUTE
        return [
            run
            for job in self._jobs
            for run in await self._world.runs(job)
            if run.due_us > since_us and is_wanted(run)
        ]


@pytest.mark.parametrize("seed", first_cases(3, range(24)))
async def test_every_job_keeps_running(seed: int) -> None:
    async with World(seed) as world:
        jobs = [
            await world.register(
                f"every {world.random.randint(2, 6)}s",
                f"{overlap.value}-{misfire.value}",
                overlap=OverlapPolicy(policy=overlap),
                misfire=MisfirePolicy(policy=misfire, grace_us=10 * SECOND),
                retry=RetryPolicy(max_attempts=3, initial_us=2 * SECOND),
            )
            for overlap in OnOverlap
            for misfire in (OnMisfire.ONCE, OnMisfire.SKIP)
        ]
        world.start("a", NARROW)
        meddler = Meddler(world, jobs)
        world.handler = meddler.work
        await meddler.meddle()
        await world.advance(CALM_S)
        for job in jobs:
            runs = await world.runs(job)
            current = await world.store.jobs.get(world.caller, job.job_id)
            assert current.state is JobState.ACTIVE
            due = [run for run in runs if run.due_us < world.now_us() - 10 * SECOND]
            assert {run.state for run in due} <= FINAL_STATES, job.name
            latest = [run.state for run in due if run.due_us > world.now_us() - MINUTE]
            assert latest.count(RunState.SUCCEEDED) >= 5, job.name
