"""Runs that are unfinished when their partition goes to another shard."""

import asyncio
from collections.abc import Collection, Sequence

import pytest
from tests.unit.shard.pulling import QUEUE, Process
from tests.unit.shard.world import START_US, World

from wheelsched.config import FairnessConfig, ShardConfig
from wheelsched.core.model import FINAL_STATES, QueueTarget, RunKey, RunState
from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import Callback, Checked, Route, Settled
from wheelsched.ports.work import Receipt
from wheelsched.values.duration import SECOND


async def test_an_unsent_run_is_left_to_the_owner_that_may_cancel_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next owner cancels it for a later run, and its carrier sends it after that."""
    ended_s: dict[RunKey, float] = {}
    settle = world.store.runs.settle

    async def settle_and_note(settled: Sequence[Settled]) -> set[RunKey]:
        stale = await settle(settled)
        for one in settled:
            if one.ending.state in FINAL_STATES and one.key not in stale:
                ended_s.setdefault(one.key, world.now_s)
        return stale

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].job_name.startswith("hog"):
            await world.clock.sleep(20 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    monkeypatch.setattr(world.store.runs, "settle", settle_and_note)
    world.handler = work
    config = ShardConfig(fairness=FairnessConfig(in_flight_per_origin=1))
    await world.register("+4", "hog", timeout_us=60 * SECOND)
    cancel = OverlapPolicy(policy=OnOverlap.CANCEL)
    job = await world.register("*/10 * * * * *", "job", overlap=cancel)
    world.start("a", config)
    await world.advance(10.5)
    world.start("b", config)
    await world.advance(0.5)
    world.shards["a"][0].stop()
    await world.advance(18)
    arrived = [(at_s, one.key) for at_s, one in world.arrived if one.key in ended_s]
    assert RunKey(job.job_id, START_US + 10 * SECOND) in ended_s
    assert all(at_s < ended_s[key] + 0.05 for at_s, key in arrived)


async def test_a_carried_run_of_a_deleted_job_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was being read when its partition was handed over, and it was carried."""
    jobs = await world.register_many(["+6.9"] * 20)
    keys = {RunKey(job.job_id, START_US + 6_900_000) for job in jobs}
    revalidate, settle = world.store.runs.revalidate, world.store.runs.settle
    carried = asyncio.Event()

    async def recheck_until_carried(wanted: Collection[RunKey]) -> list[Checked]:
        checked = await revalidate(wanted)
        if keys & set(wanted):
            await carried.wait()
        return checked

    async def settle_and_tell(settled: Sequence[Settled]) -> set[RunKey]:
        stale = await settle(settled)
        if any(one.ending.state is RunState.RUNNING for one in settled):
            carried.set()
        return stale

    world.start("a")
    await world.advance(5.3)
    world.start("b")
    await world.advance(5.95 - world.now_s)
    monkeypatch.setattr(world.store.runs, "revalidate", recheck_until_carried)
    monkeypatch.setattr(world.store.runs, "settle", settle_and_tell)
    for job in jobs:
        await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(0.4)
    assert carried.is_set()
    await world.advance(300)
    states = [world.store._tables.runs[key].run.state for key in keys]
    assert all(state in FINAL_STATES for state in states)


async def test_a_run_that_has_the_last_credit_is_carried_to_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is live and not sent yet, and the next run of its job is armed."""
    overlap = OverlapPolicy(policy=OnOverlap.QUEUE)
    job = await world.register("*/10 * * * * *", queue=QueueTarget(queue=QUEUE), overlap=overlap)
    first, second = (RunKey(job.job_id, START_US + after_s * SECOND) for after_s in (10, 20))
    revalidate = world.store.runs.revalidate
    is_carried = asyncio.Event()

    async def recheck_when_carried(wanted: Collection[RunKey]) -> list[Checked]:
        await is_carried.wait()
        return await revalidate(wanted)

    world.start("a")
    process = Process(world)
    process.connect()
    await world.advance(18)
    monkeypatch.setattr(world.store.runs, "revalidate", recheck_when_carried)
    world.links["a"].is_deaf = True
    await world.advance(1.5)
    process.lend(1)  # it is read before it goes
    await world.advance(0.1)
    rows = world.store._tables.runs
    assert [rows[key].run.state for key in (first, second)] == [RunState.ARMED] * 2
    shard, task = world.shards.pop("a")
    shard.stop()
    await world.advance(0.1)
    assert [rows[key].run.state for key in (first, second)] == [RunState.RUNNING, RunState.ARMED]
    is_carried.set()
    await world.advance(1)
    assert [run.attempt.key for run in process.runs] == [first]
    assert await process.finish(*process.runs) == [Receipt.WRITTEN]
    await world.advance(1)
    assert task.done()
