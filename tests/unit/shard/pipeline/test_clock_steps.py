"""The pipeline while the clock of the database is stepped."""

from collections.abc import AsyncIterator, Sequence

import pytest
from tests.unit.shard.workers import accepting
from tests.unit.shard.world import START_US, World

from wheelsched.config import FairnessConfig, ShardConfig
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Checked, Route
from wheelsched.shard.loading.hint_freshness import HintFreshness
from wheelsched.values.duration import SECOND


class Stepping(World):
    """A world whose database clock can be stepped."""

    shift_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.shift_us


@pytest.fixture
async def world() -> AsyncIterator[Stepping]:
    async with Stepping() as world:
        yield world


async def test_a_clock_step_back_does_not_stop_the_refresh(world: Stepping) -> None:
    world.start()
    await world.advance(5)
    world.shift_us = -3_600 * SECOND
    await world.advance(10)
    due_s = world.now_s + 900  # beyond the horizon: no hint tells of it
    await world.register(f"+{due_s}")
    await world.advance(1_000)
    assert world.times == [pytest.approx(due_s, abs=0.01)]


async def test_a_waiting_run_waits_for_its_time_after_a_clock_step_back(
    world: Stepping,
) -> None:
    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(16_000_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = work
    await world.register("every 10s", overlap=OverlapPolicy(policy=OnOverlap.QUEUE))
    world.start()
    await world.advance(20.5)
    world.shift_us = -30 * SECOND
    await world.advance(60)
    start_s = START_US / SECOND
    dues_s = [callback.key.due_us / SECOND - start_s for _, callback in world.arrived]
    assert dues_s[:2] == [10, 20]
    assert all(at_s >= due_s for at_s, due_s in zip(world.times, dues_s, strict=True))


async def test_a_waiting_run_is_not_even_a_little_early_after_a_small_step_back(
    world: Stepping,
) -> None:
    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(10_070_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = work
    world.start()
    await world.advance(0.95)
    await world.register("every 10s", overlap=OverlapPolicy(policy=OnOverlap.QUEUE))
    await world.advance(20.02)  # the second run has come due, and waits for the first
    world.shift_us = -150_000  # known at the next renewal, in 30 ms; the first run ends in 50
    await world.advance(10)
    assert [round(at_s, 2) for at_s in world.times[:2]] == [10.95, 20.95]


async def test_a_run_that_waits_for_a_place_is_not_even_a_little_early(world: Stepping) -> None:
    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].key.job_id == blocker.job_id:
            await world.clock.sleep(16_020_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer
    blocker = await world.register("+5", "blocker")
    await world.register("+20.95")
    world.start(config=ShardConfig(fairness=FairnessConfig(in_flight_per_origin=1)))
    await world.advance(20.97)
    world.shift_us = -150_000  # known at the next renewal, in 30 ms; the place is free in 50
    await world.advance(10)
    assert [round(at_s, 2) for at_s in world.times] == [5.0, 20.95]


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_run_that_came_due_too_early_waits_for_its_time(
    world: Stepping, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """It is queued, or waits to be revalidated, when the shard learns that its clock was wrong."""

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].key.job_id == blocker.job_id:
            await world.clock.sleep(25 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    revalidate = world.store.runs.revalidate

    async def recheck_slowly(keys: Sequence[RunKey]) -> list[Checked]:
        await world.clock.sleep(10 * SECOND * 1_000)
        return await revalidate(keys)

    world.handler = answer
    blocker = await world.register("+5", "blocker")
    await world.register("+19.8")
    places = 10 if is_held else 1
    world.start(config=ShardConfig(fairness=FairnessConfig(in_flight_per_origin=places)))
    await world.advance(19.5)
    if is_held:
        monkeypatch.setattr(HintFreshness, "covers", lambda *_: False)
        world.link.runs.revalidate = recheck_slowly
    world.shift_us = -30 * SECOND
    await world.advance(20)
    assert len(world.times) == 1
    monkeypatch.undo()
    await world.advance(40)
    assert world.times[1:] == [pytest.approx(19.8, abs=0.2 if is_held else 0.01)]


async def test_a_clock_step_back_does_not_stop_a_takeover(world: Stepping) -> None:
    world.start("a")
    world.start("b")
    await world.advance(15)
    world.shift_us = -3_600 * SECOND
    await world.advance(30)
    await world.register_many(["*/10 * * * * *"] * 20)
    await world.kill("a")
    await world.advance(60)
    world.arrived.clear()
    await world.advance(30)
    assert len({callback.key.job_id for _, callback in world.arrived}) == 20


@pytest.mark.parametrize("shift_us", [3_600 * SECOND, -3_600 * SECOND])
async def test_a_clock_step_does_not_fail_a_worker_with_heartbeats(
    world: Stepping, shift_us: int
) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=10 * SECOND)
    world.start()
    await world.advance(8)
    ((_, callback),) = world.arrived
    for number in range(12):
        assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
        if number == 4:
            world.shift_us = shift_us
        await world.advance(4)
    assert await world.states(job) == [RunState.RUNNING]
    assert len(world.arrived) == 1


@pytest.mark.parametrize("has_heartbeat", [False, True])
async def test_a_clock_step_back_does_not_hide_missing_heartbeats(
    world: Stepping, has_heartbeat: bool
) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=10 * SECOND, retry=RetryPolicy(max_attempts=1))
    world.start()
    await world.advance(8)
    ((_, callback),) = world.arrived
    if has_heartbeat:
        assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
    world.shift_us = -3_600 * SECOND
    await world.advance(25)
    assert await world.states(job) == [RunState.DEAD]
