"""The cost of a run does not depend on how many others its job has."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest
from tests.unit.shard.world import START_US, World

from wheelsched.config import RecoveryConfig, ShardConfig
from wheelsched.core.model import Job, RunKey, Trigger, requested_due_us
from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.core.partition import partition_of
from wheelsched.ports import Callback, Checked, RequestedRun, Route
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.values.duration import SECOND

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
    """Each run is a separate request, and so a separate hint."""
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
    """No run ends, so all others wait."""

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
            patch.setattr(RunRegistry, name, self._counting(name, getattr(RunRegistry, name)))
        for store, name in ((runs, "revalidate"), (timers, "arm_retries"), (runs, "adopt")):
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
        async def call(*arguments: Any, **named: Any) -> Any:
            found = await ask(*arguments, **named)
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


@pytest.mark.proof
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_twice_as_many_runs_cost_twice_as_much(scenario: Scenario) -> None:
    once = await effort_of(scenario, FEW)
    twice = await effort_of(scenario, 2 * FEW)
    for what, runs in twice.items():
        assert runs <= 3 * max(once[what], FEW), (what, once, twice)


async def test_a_job_that_changes_all_the_time_still_runs(world: World) -> None:
    job = await world.register(YEARLY)
    world.start()
    await world.advance(1)
    await request(world, job, FEW, Trigger.BACKFILL)
    for _ in range(3_000):
        world.store._tables.hint(job.job_id)
        await world.advance(0.001)
    assert len(world.keys) > 50
    await world.advance(FEW * EACH_S)
    assert len(world.keys) == FEW


async def test_a_changed_job_does_not_wait_for_a_large_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(world)
    crowd, other = await world.register_many([YEARLY, "+20"])
    world.start()
    await request(world, crowd, 10 * FEW, Trigger.BACKFILL)
    await world.advance(17)
    revalidate = world.store.runs.revalidate
    read: list[Collection[RunKey]] = []

    async def recheck_slowly(keys: Collection[RunKey]) -> list[Checked]:
        read.append(keys)
        await world.clock.sleep(100_000_000)
        return await revalidate(keys)

    monkeypatch.setattr(world.store.runs, "revalidate", recheck_slowly)
    world.store._tables.hint(crowd.job_id)
    await world.advance(0.15)
    world.store._tables.hint(other.job_id)
    await world.advance(2)
    assert len(read) > 10  # all that while the crowd is read
    assert any(key.job_id == other.job_id for keys in read[:4] for key in keys)
    await world.advance(1)
    assert [round(at_s, 3) for at_s, each in world.arrived if each.key.job_id == other.job_id] == [
        20
    ]


async def test_a_run_that_is_read_while_its_job_changes_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read may have come before the change."""
    job = await world.register("+20")
    world.start()
    await world.advance(17)
    revalidate = world.store.runs.revalidate

    async def recheck_slowly(keys: Collection[RunKey]) -> list[Checked]:
        checked = await revalidate(keys)
        await world.clock.sleep(500_000_000)
        return checked

    monkeypatch.setattr(world.store.runs, "revalidate", recheck_slowly)
    world.store._tables.hint(job.job_id)
    await world.advance(0.2)
    await world.store.jobs.pause(world.caller, job.job_id)  # too late for the first read
    await world.advance(10)
    assert world.arrived == []


async def test_a_backlog_does_not_hold_back_the_marks_of_other_partitions(
    world: World,
) -> None:
    """The mark of every partition advances, except that of the backlog."""
    hang(world)
    job = await world.register(YEARLY)
    recovery = RecoveryConfig(most_compared=FEW // 2)
    world.start(config=ShardConfig(refresh_us=3 * SECOND, recovery=recovery))
    await world.advance(1)
    await request(world, job, FEW, Trigger.BACKFILL)
    await world.advance(60)
    marks_us = [row.live_since_us for row in world.store._tables.partitions]
    behind = [partition for partition, mark_us in enumerate(marks_us) if mark_us < START_US]
    assert behind == []
    late = [p for p, mark_us in enumerate(marks_us) if mark_us < START_US + 50 * SECOND]
    assert late == [partition_of(job.job_id)]
