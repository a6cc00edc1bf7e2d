"""Runs that were armed when the last shard stopped, and missed before the next one started."""

import pytest
from tests.unit.shard.world import World

from wheelsched.core.model import Job, RunState, SkipReason
from wheelsched.core.policies.policy import MisfirePolicy, OnMisfire, OnOverlap, OverlapPolicy
from wheelsched.values.duration import MINUTE, SECOND

STOPPED_S = 120


async def stop_and_start(world: World, misfire: MisfirePolicy) -> Job:
    """Stops the only shard while a job runs every second, and starts another one later."""
    allow = OverlapPolicy(policy=OnOverlap.ALLOW)
    job = await world.register("* * * * * *", misfire=misfire, overlap=allow)
    world.start("a")
    await world.advance(20.5)
    await world.stop("a")
    world.arrived.clear()
    await world.advance(STOPPED_S)
    world.start("b")
    await world.advance(10)
    return job


def missed_s(world: World, misfire: MisfirePolicy) -> list[float]:
    """The lateness of each callback that arrived past its grace."""
    start_us = world.now_us() - int(world.now_s * SECOND)
    late_s = [at_s - (one.key.due_us - start_us) / SECOND for at_s, one in world.arrived]
    return [late for late in late_s if late > misfire.grace_us / SECOND]


async def test_skip_sends_no_missed_run(world: World) -> None:
    misfire = MisfirePolicy(policy=OnMisfire.SKIP, grace_us=SECOND)
    job = await stop_and_start(world, misfire)
    assert missed_s(world, misfire) == []
    runs = await world.runs(job)
    assert {run.skip_reason for run in runs} == {None, SkipReason.MISFIRE_SKIP}


async def test_once_sends_only_the_latest(world: World) -> None:
    misfire = MisfirePolicy(policy=OnMisfire.ONCE, grace_us=SECOND)
    job = await stop_and_start(world, misfire)
    assert len(missed_s(world, misfire)) == 1
    runs = await world.runs(job)
    assert {run.skip_reason for run in runs} == {None, SkipReason.SUPERSEDED}


async def test_all_sends_no_more_than_max_missed(world: World) -> None:
    misfire = MisfirePolicy(policy=OnMisfire.ALL, grace_us=SECOND, max_missed=5)
    job = await stop_and_start(world, misfire)
    assert len(missed_s(world, misfire)) == 5
    runs = await world.runs(job)
    assert {run.skip_reason for run in runs} == {None, SkipReason.MAX_MISSED}


async def test_no_run_past_the_window_is_sent(world: World) -> None:
    misfire = MisfirePolicy(policy=OnMisfire.ALL, grace_us=SECOND, window_us=MINUTE)
    await stop_and_start(world, misfire)
    assert max(missed_s(world, misfire)) <= 61


@pytest.mark.parametrize("choice", list(OnMisfire))
async def test_every_due_time_has_an_end(world: World, choice: OnMisfire) -> None:
    job = await stop_and_start(world, MisfirePolicy(policy=choice, grace_us=SECOND))
    runs = await world.runs(job)
    ended = [run for run in runs if run.state in {RunState.SUCCEEDED, RunState.SKIPPED}]
    assert sum(run.missed_count or 1 for run in ended) >= int(world.now_s)


async def test_armed_runs_of_a_crashed_shard_are_sent_however_late(world: World) -> None:
    """It may have been sent before, but at-least-once delivery requires it."""
    misfire = MisfirePolicy(policy=OnMisfire.SKIP, grace_us=SECOND)
    await world.register("* * * * * *", misfire=misfire)
    world.start("a")
    await world.advance(20.5)
    await world.kill("a")
    world.arrived.clear()
    await world.advance(STOPPED_S)
    world.start("b")
    await world.advance(10)
    assert missed_s(world, misfire)


async def test_a_run_from_before_a_pause_is_sent(world: World) -> None:
    """No later due time of a paused job fires for it."""
    misfire = MisfirePolicy(policy=OnMisfire.ONCE, grace_us=SECOND)
    job = await world.register("* * * * * *", misfire=misfire)
    world.start("a")
    await world.advance(20.9)
    await world.stop("a")
    world.arrived.clear()
    await world.advance(23.5 - world.now_s)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(STOPPED_S)
    world.start("b")
    await world.advance(10)
    reasons = {run.skip_reason for run in await world.runs(job)}
    assert SkipReason.SUPERSEDED not in reasons
    assert missed_s(world, misfire)
