"""The whole pipeline in virtual time: shards that join, leave, die or are cut off."""

from collections import Counter
from collections.abc import Collection

import pytest
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import START_US, World

from wheelsched.core.model import RunState, SkipReason
from wheelsched.core.policies.policy import MisfirePolicy, OnMisfire, OnOverlap, OverlapPolicy
from wheelsched.ports import Horizon
from wheelsched.values.duration import SECOND


async def test_two_shards_share_the_work_without_duplicates(world: World) -> None:
    await world.register_many(["*/10 * * * * *"] * 100)
    first, second = world.start("a"), world.start("b")
    await world.advance(61)
    assert len(world.keys) == 600
    assert set(world.keys.values()) == {1}
    assert all(abs(at - round(at, -1)) < 0.01 for at in world.times)
    shares = [shard.vitals.ownership.partitions for shard in (first, second)]
    assert sum(shares) == 256
    assert min(shares) > 80


async def test_the_jobs_of_a_dead_shard_continue_within_seconds(world: World) -> None:
    beside = OverlapPolicy(policy=OnOverlap.ALLOW)
    await world.register_many(["* * * * * *"] * 50, overlap=beside)
    world.start("a")
    world.start("b")
    await world.advance(20.5)
    await world.kill("a")
    await world.advance(40)
    due = {key.due_us for key in world.keys}
    assert len(due) == 60
    assert len(world.keys) == 50 * 60
    late = [at - callback.key.due_us / SECOND for at, callback in world.arrived]
    start = world.now_us() / SECOND - world.now_s
    assert max(late) + start < 12


async def test_a_takeover_does_not_wait_for_a_refresh(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million timers take long to read, and those of the dead shard are due now."""
    load = world.store.timers.load
    refreshed_s: list[float] = []

    async def load_slowly(partitions: Collection[int], until_us: int) -> Horizon:
        if len(partitions) > 1 and refreshed_s == [] and world.now_s > 50:
            refreshed_s.append(world.now_s)
            await world.clock.sleep(30 * SECOND * 1_000)
        return await load(partitions, until_us)

    beside = OverlapPolicy(policy=OnOverlap.ALLOW)
    await world.register_many(["* * * * * *"] * 20, overlap=beside)
    world.start("a")
    await world.advance(30)
    world.start("b")
    await world.advance(25)
    monkeypatch.setattr(world.store.timers, "load", load_slowly)
    await world.kill("b")  # the refresh of the other is at 60
    await world.advance(20)
    assert refreshed_s == [pytest.approx(60, abs=1)]
    due = Counter(callback.key.due_us for _, callback in world.arrived)
    assert due[START_US + 70 * SECOND] == 20


async def test_a_leaving_shard_causes_no_late_or_duplicate_run(
    world: World,
) -> None:
    await world.register_many(["* * * * * *"] * 50)
    world.start("a")
    world.start("b")
    await world.advance(20.45)
    await world.stop("a")
    await world.advance(20)
    assert set(world.keys.values()) == {1}
    assert all(abs(at - round(at)) < 0.02 for at in world.times)
    assert len(world.keys) == 50 * int(world.now_s)


async def test_a_joining_shard_causes_no_late_or_duplicate_run(
    world: World,
) -> None:
    world.handler = Slow(world, 1.5)
    await world.register_many(["* * * * * *"] * 50, overlap=OverlapPolicy(policy=OnOverlap.ALLOW))
    world.start("a")
    await world.advance(20.45)
    world.start("b")
    await world.advance(20)
    assert set(world.keys.values()) == {1}
    assert all(abs(at - round(at)) < 0.02 for at in world.times)
    assert len(world.keys) == 50 * 40


async def test_a_frozen_shard_does_not_send_its_armed_runs_when_it_wakes(world: World) -> None:
    job = await world.register("+30")
    world.start()
    await world.advance(29.5)
    world.link.is_cut = True
    await world.advance(10)
    assert world.times == []
    world.link.is_cut = False
    await world.advance(4)
    assert len(world.arrived) == 1
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_misfires_after_an_outage_follow_their_policy(world: World) -> None:
    once = await world.register("* * * * * *", "once")
    skip = await world.register(
        "*/10 * * * * *", "skip", misfire=MisfirePolicy(policy=OnMisfire.SKIP, grace_us=SECOND)
    )
    world.start()
    await world.advance(20.5)
    world.link.is_cut = True
    await world.advance(121)
    count = len(world.arrived)
    world.link.is_cut = False
    await world.advance(3)
    assert len(world.arrived) > count
    runs = await world.runs(skip)
    missed = [run for run in runs if run.skip_reason is SkipReason.MISFIRE_SKIP]
    assert sum(run.missed_count or 1 for run in missed) == 12
    (summary,) = [run for run in await world.runs(once) if run.missed_count is not None]
    assert summary.skip_reason is SkipReason.SUPERSEDED
