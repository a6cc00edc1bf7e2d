"""A backlog of one job leaves room to arm, memory and time to the others."""

from collections.abc import Sequence

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.shard.world import START_US, World

from wheelsched.config import ArmConfig, ShardConfig
from wheelsched.core.model import Job, RunKey, RunState, Trigger
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, RequestedRun, Route
from wheelsched.shard.arming.arm import Arm
from wheelsched.values.duration import SECOND

ARMED_PER_JOB = 1_000
BACKLOG = 3 * ARMED_PER_JOB


@pytest.fixture(autouse=True)
def small_window(world: World) -> None:
    world.config = ShardConfig(arm=ArmConfig(armed_per_job=ARMED_PER_JOB))


async def request(world: World, job: Job, count: int) -> None:
    """Triggers runs of a job, in addition to its schedule."""
    now_us = world.now_us()
    runs = [
        RequestedRun(
            key=RunKey(job.job_id, now_us + 1 + number),
            trigger=Trigger.BACKFILL,
            backfill_of_us=START_US - number * SECOND,
        )
        for number in range(count)
    ]
    await world.store.history.request(world.caller, runs)


def hang(world: World) -> None:
    """A worker on which the runs of jobs named hog never end."""

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].job_name.startswith("hog"):
            await world.clock.sleep(10_000 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = work


async def test_a_backlog_is_armed_in_parts(world: World) -> None:
    hang(world)
    hog = await world.register("+5000", "hog", timeout_us=20_000 * SECOND)
    shard = world.start()
    await world.advance(1)
    await request(world, hog, BACKLOG)
    await world.advance(20)
    assert shard.vitals.runs.armed <= ARMED_PER_JOB


async def test_the_whole_backlog_is_sent(world: World) -> None:
    hog = await world.register("+5000", overlap=OverlapPolicy(policy=OnOverlap.ALLOW))
    world.start()
    await world.advance(1)
    await request(world, hog, BACKLOG)
    await world.advance(120)
    states = [world.store._tables.runs[key].run.state for key in world.keys]
    assert states == [RunState.SUCCEEDED] * BACKLOG


async def test_runs_of_other_jobs_are_armed_next_to_a_backlog(world: World) -> None:
    """Even if the backlog would fill all the room for manual runs."""
    hang(world)
    hog = await world.register("+5000", "hog", timeout_us=20_000 * SECOND)
    other = await world.register("+5000", "other")
    world.start("a", replace(world.config, max_armed=2 * ARMED_PER_JOB + 200))
    await world.advance(1)
    await request(world, hog, BACKLOG)
    await world.advance(20)
    await request(world, other, 1)
    await world.advance(5)
    assert [key.job_id for key in world.keys].count(other.job_id) == 1


async def test_arming_rests_while_there_is_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(world)
    hog = await world.register("+5000", "hog", timeout_us=20_000 * SECOND)
    world.start("a", replace(world.config, max_armed=ARMED_PER_JOB))
    await world.advance(1)
    await request(world, hog, BACKLOG)
    await world.advance(20)
    rounds = 0
    arm_round = Arm._round

    async def count_rounds(self: Arm, *arguments: object) -> None:
        nonlocal rounds
        rounds += 1
        await arm_round(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Arm, "_round", count_rounds)
    await world.advance(10)
    assert rounds < 500


async def test_a_further_attempt_of_a_live_run_is_not_held_back(world: World) -> None:
    async def fail_first(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].attempt == 1:
            return [Failed(error="no")] * len(callbacks)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = fail_first
    retry = RetryPolicy(initial_us=1_000, max_us=1_000)
    job = await world.register("+5000", retry=retry)
    world.start()
    await world.advance(1)
    await request(world, job, ARMED_PER_JOB + 500)
    await world.advance(300)
    states = [world.store._tables.runs[key].run.state for key in world.keys]
    assert states == [RunState.SUCCEEDED] * (ARMED_PER_JOB + 500)


async def test_a_further_attempt_finds_room_in_a_shard_full_of_runs_that_wait_for_it(
    world: World,
) -> None:
    async def fail_first(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].attempt == 1:
            return [Failed(error="no")] * len(callbacks)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = fail_first
    retry = RetryPolicy(initial_us=1_000, max_us=1_000)
    job = await world.register("+5000", retry=retry)
    world.start("a", ShardConfig(max_armed=100))
    await world.advance(1)
    await request(world, job, 200)
    await world.advance(300)
    states = [world.store._tables.runs[key].run.state for key in world.keys]
    assert states == [RunState.SUCCEEDED] * 200


async def test_a_single_trigger_goes_ahead_of_a_backlog(world: World) -> None:
    async def work_slowly(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(10 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = work_slowly
    job = await world.register("+5000")
    world.start()
    await world.advance(1)
    await request(world, job, BACKLOG)
    await world.advance(60)
    asked = RequestedRun(key=RunKey(job.job_id, world.now_us() + 1), trigger=Trigger.MANUAL)
    (key,) = await world.store.history.request(world.caller, [asked])
    await world.advance(30)
    assert world.keys[key] == 1


async def test_fewer_runs_are_armed_if_their_requests_are_large(world: World) -> None:
    hang(world)
    world.config = ShardConfig(arm=ArmConfig(armed_bytes_per_job=32 << 20))
    payload = Raw(b'"' + b"x" * (256 << 10) + b'"')
    hog = await world.register("+5000", "hog", timeout_us=20_000 * SECOND, payload=payload)
    shard = world.start()
    await world.advance(1)
    await request(world, hog, 1)
    await world.advance(1)
    await request(world, hog, 2)
    await world.advance(1)
    await request(world, hog, BACKLOG)
    await world.advance(20)
    assert ArmConfig().armed_at_least <= shard.vitals.runs.armed <= 130
