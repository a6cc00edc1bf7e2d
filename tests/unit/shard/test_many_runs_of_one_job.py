"""What one run costs does not depend on how many others its job has."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest
from tests.unit.shard.world import World

from wheelsched.core.model import Job, RunKey, Trigger, requested_due_us
from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.ports import Callback, RequestedRun, Route
from wheelsched.shard.unfinished import Unfinished

FEW = 1_500  # more than any part of the shard takes at once
YEARLY = "0 0 1 1 *"
EACH_S = 0.05  # until the outcome of a run is written, and the next of its job goes out
HANG_S = 100_000

Scenario = Callable[[World, Job, int], Awaitable[None]]


async def request(world: World, job: Job, count: int, trigger: Trigger) -> list[RunKey]:
    wanted = [
        RequestedRun(
            key=RunKey(job.job_id, requested_due_us(world.now_us(), index)), trigger=trigger
        )
        for index in range(count)
    ]
    return await world.store.history.request(world.caller, wanted)


async def backfill(world: World, job: Job, count: int) -> None:
    """Several large requests in a row."""
    for _ in range(5):
        await request(world, job, count // 5, Trigger.BACKFILL)
        await world.advance(0.1)
    await world.advance(count * EACH_S)
    assert len(world.keys) == count


async def trigger_storm(world: World, job: Job, count: int) -> None:
    """Each run is a request, and so a hint, of its own."""
    for _ in range(count):
        await request(world, job, 1, Trigger.MANUAL)
        await world.advance(0.001)
    await world.advance(count * EACH_S)
    assert len(world.keys) == count


async def delete_while_they_wait(world: World, job: Job, count: int) -> None:
    hang(world)
    await request(world, job, count, Trigger.BACKFILL)
    await world.advance(10)
    await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(30)
    shard, _ = world.shards["a"]
    assert shard.vitals.runs.armed == 0


async def cancel_one_by_one(world: World, job: Job, count: int) -> None:
    hang(world)
    keys = await request(world, job, count, Trigger.BACKFILL)
    await world.advance(10)
    for key in keys[1:]:
        await world.store.history.cancel(world.caller, key)
        await world.advance(0.001)
    await world.advance(30)
    shard, _ = world.shards["a"]
    assert shard.vitals.runs.armed == 0


async def redrive(world: World, job: Job, count: int) -> None:
    hang(world)
    keys = await request(world, job, count, Trigger.BACKFILL)
    await world.advance(10)
    for key in keys[1:]:
        await world.store.history.cancel(world.caller, key)
    await world.advance(30)
    for start in range(1, count, 100):
        assert not await world.store.history.retry(world.caller, keys[start : start + 100])
        await world.advance(0.01)
    await world.advance(20)
    shard, _ = world.shards["a"]
    assert shard.vitals.runs.armed == count - 1


async def take_over(world: World, job: Job, count: int) -> None:
    hang(world)
    await request(world, job, count, Trigger.BACKFILL)
    await world.advance(10)
    await world.kill("a")
    world.start("b")
    await world.advance(60)
    shard, _ = world.shards["b"]
    assert shard.vitals.runs.armed == count - 1


async def hand_over(world: World, job: Job, count: int) -> None:
    hang(world)
    await request(world, job, count, Trigger.BACKFILL)
    await world.advance(10)
    world.shards["a"][0].stop()
    world.start("b")
    await world.advance(60)
    shard, _ = world.shards["b"]
    assert shard.vitals.runs.armed == count - 1


def hang(world: World) -> None:
    """No run comes to an end: all others wait for their turn."""

    async def wait(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        await world.clock.sleep(HANG_S * 1_000_000_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = wait


class Effort:
    """Counts the runs that go from the registry to a stage, and from and to the store."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.runs = Counter[str]()
        timers, runs = world.store.timers, world.store.runs
        for name in ("armed_of", "live_of"):
            patch.setattr(Unfinished, name, self._counting(name, getattr(Unfinished, name)))
        for store, name in ((runs, "recheck"), (timers, "arm_retries"), (runs, "adopt")):
            patch.setattr(store, name, self._counting_given(name, getattr(store, name)))
        for store, name in ((runs, "list_unfinished"), (timers, "load"), (timers, "reload")):
            patch.setattr(store, name, self._counting_found(name, getattr(store, name)))

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            found = function(*arguments)
            self.runs[name] += len(found)
            return found

        return call

    def _counting_given(self, name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            self.runs[name] += len(arguments[-1])
            return await ask(*arguments)

        return call

    def _counting_found(self, name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            found = await ask(*arguments)
            self.runs[name] += len(getattr(found, "retries", found))
            return found

        return call


async def effort_of(scenario: Scenario, count: int) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        async with World() as world:
            effort = Effort(world, patch)
            job = await world.register(YEARLY)
            world.start("a")
            await world.advance(1)
            await scenario(world, job, count)
            return effort.runs


SCENARIOS: Collection[Scenario] = (
    backfill,
    trigger_storm,
    delete_while_they_wait,
    cancel_one_by_one,
    redrive,
    take_over,
    hand_over,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_twice_as_many_runs_cost_twice_as_much(scenario: Scenario) -> None:
    once = await effort_of(scenario, FEW)
    twice = await effort_of(scenario, 2 * FEW)
    for what, runs in twice.items():
        assert runs <= 3 * max(once[what], FEW), (what, once, twice)
