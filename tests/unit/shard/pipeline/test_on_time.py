"""The whole pipeline in virtual time: registered jobs arrive when they are due, and once."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core.model import JobState, RunState
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.request import trigger
from wheelsched.ports import Callback, RequestedRun, Route
from wheelsched.values.duration import SECOND


async def test_a_one_off_arrives_at_its_millisecond_and_ends(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(4.999)
    assert world.times == []
    await world.advance(0.002)
    assert world.times == [pytest.approx(5, abs=0.001)]
    await world.advance(2)
    (run,) = await world.runs(job)
    assert run.state is RunState.SUCCEEDED
    assert run.lateness_us is not None
    assert run.lateness_us < 1_000
    assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.FINISHED


async def test_a_recurring_job_arrives_at_every_due_time_once(world: World) -> None:
    await world.register("*/10 * * * * *")
    world.start()
    await world.advance(65)
    assert world.times == [pytest.approx(10 * n, abs=0.001) for n in range(1, 7)]
    assert set(world.keys.values()) == {1}


async def test_one_that_is_registered_50_ms_ahead_is_on_time(world: World) -> None:
    world.start()
    await world.advance(3)
    await world.register("+3.05")
    await world.advance(1)
    assert world.times == [pytest.approx(3.05, abs=0.001)]


async def test_after_a_crowd_was_armed_far_ahead_the_next_ones_are_on_time(world: World) -> None:
    await world.register_many(["+40"] * 20, "crowd")
    world.start(config=ShardConfig(lead=LeadConfig(first_rate=1.0)))
    await world.advance(3)
    assert world.shards["a"][0].vitals.runs.armed == 20
    failed = False

    async def fail_once(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        nonlocal failed
        is_first, failed = not failed, True
        return [
            Failed(http_status=503, error="busy") if is_first else Succeeded(http_status=200)
        ] * len(callbacks)

    world.handler = fail_once
    await world.register("+3.05", retry=RetryPolicy(initial_us=SECOND))
    await world.advance(5)
    assert world.times[0] == pytest.approx(3.05, abs=0.001)
    assert len(world.times) == 2
    assert world.times[1] < 4.2


async def test_without_hints_it_comes_with_the_next_refresh(world: World) -> None:
    world.start()
    await world.advance(3)
    world.link.is_deaf = True
    await world.register("+90")
    await world.advance(100)
    assert world.times == [pytest.approx(90, abs=0.001)]


async def test_a_batch_goes_out_in_one_request(world: World) -> None:
    await world.register_many(["+5"] * 25, batch=10)
    world.start()
    await world.advance(6)
    assert sorted(len(sent.callbacks) for sent in world.dispatcher.sent) == [5, 10, 10]
    assert set(world.keys.values()) == {1}
    assert len(world.keys) == 25


async def test_a_manual_run_is_sent_at_once(world: World) -> None:
    job = await world.register("0 0 1 1 *")
    world.start()
    await world.advance(3)
    run = trigger(job, world.now_us())
    await world.store.history.request(
        world.caller, [RequestedRun(key=run.key, trigger=run.trigger)]
    )
    await world.advance(1)
    assert world.times == [pytest.approx(3, abs=0.1)]
    assert world.arrived[0][1].trigger == "manual"


async def test_a_small_tenant_does_not_wait_for_a_large_one(world: World) -> None:
    other = await world.add_tenant(UUID(int=2), "second")
    await world.register_many(["+10"] * 2_000, "many")
    await world.register_many(["+10"] * 5, "few", caller=other, url="http://few.example/")
    world.handler = Slow(world, 0.05)
    world.start()
    await world.advance(30)
    few = [at for at, callback in world.arrived if callback.job_name.startswith("few")]
    assert len(world.keys) == 2_005
    assert max(few) < 10.1
