"""The pipeline when a shard dies at a bad moment: the other shards forget no run."""

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

import pytest
from tests.unit.shard.workers import Failing, Slow, accepting
from tests.unit.shard.world import START_US, World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core.model import UNFINISHED_STATES, RunKey, RunState
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Adoption, Checked, Lease, Mark, Settled
from wheelsched.values.duration import SECOND

SKIP = OverlapPolicy(policy=OnOverlap.SKIP)


async def test_a_mark_does_not_pass_a_run_with_an_unwritten_ruling(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await world.register("* * * * * *", overlap=SKIP)
    world.handler = accepting
    runs, timers = world.store.runs, world.store.timers
    settle, advance = runs.settle, timers.advance
    is_marked = asyncio.Event()

    async def settle_slowly(settled: Sequence[Settled]) -> set[RunKey]:
        await world.clock.sleep(3_000_000_000)
        return await settle(settled)

    async def mark(lease: Lease, marks: dict[int, Mark]) -> None:
        await advance(lease, marks)
        is_marked.set()

    world.start("a")
    await world.advance(58.5)
    monkeypatch.setattr(runs, "settle", settle_slowly)
    monkeypatch.setattr(timers, "advance", mark)
    while not is_marked.is_set():
        await world.advance(0.05)
    assert RunState.ARMED in await world.states(job)  # by the database; it was skipped
    await world.kill("a")
    monkeypatch.undo()
    world.handler = Slow(world, 0)
    world.start("b")
    await world.advance(150)
    left = [run for run in await world.runs(job) if run.state in UNFINISHED_STATES]
    assert all(run.due_us >= world.now_us() for run in left)


async def test_a_carried_run_is_adopted_although_the_reply_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await world.register("*/5 * * * * *", overlap=SKIP)
    world.handler = Slow(world, 10_000)
    adopt = world.store.runs.adopt
    lost: list[Sequence[Adoption]] = []

    async def adopt_unheard(lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        answer = await adopt(lease, adoptions)
        if adoptions and not lost:
            lost.append(adoptions)
            raise StoreUnavailable
        return answer

    monkeypatch.setattr(world.store.runs, "adopt", adopt_unheard)
    config = ShardConfig(lead=LeadConfig(least_us=SECOND))  # nothing else is armed then
    world.start("a", config)
    await world.advance(5.2)
    world.start("b", config)
    await world.advance(0.5)
    world.shards["a"][0].stop()
    await world.advance(1)
    assert await world.states(job) == [RunState.RUNNING]  # carried by the first to its end
    await world.kill("a")
    world.handler = Slow(world, 0)
    await world.advance(60)
    assert lost
    states = await world.states(job)
    assert states[0] is RunState.SUCCEEDED
    assert states[-3:] == [RunState.SUCCEEDED] * 3


async def test_a_carried_run_is_live_while_it_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is due again before the adoption is done."""
    await world.register("*/5 * * * * *", overlap=SKIP)
    world.handler = Slow(world, 10_000)
    adopt = world.store.runs.adopt

    async def adopt_slowly(lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        await world.clock.sleep(6 * SECOND * 1_000)
        return await adopt(lease, adoptions)

    config = ShardConfig(lead=LeadConfig(least_us=SECOND))
    world.start("a", config)
    await world.advance(5.2)
    world.start("b", config)
    await world.advance(0.5)
    world.shards["a"][0].stop()
    await world.advance(1)
    monkeypatch.setattr(world.store.runs, "adopt", adopt_slowly)
    await world.kill("a")
    world.handler = Slow(world, 30)
    world.arrived.clear()
    await world.advance(40)
    assert [callback.key.due_us for _, callback in world.arrived][:1] == [START_US + 5 * SECOND]
    assert len([at_s for at_s in world.times if at_s < world.times[0] + 29]) == 1


async def test_a_carried_run_of_a_deleted_job_is_left_to_its_carrier(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job was deleted too late: the run is about to be sent, and only its carrier ends it."""
    job = await world.register("+6")
    key = RunKey(job.job_id, START_US + 6 * SECOND)
    revalidate = world.store.runs.revalidate
    too_late: list[RunKey] = []

    async def recheck_deleted(keys: Collection[RunKey]) -> list[Checked]:
        """Deletes the job after the hand-over of its partition, before the new owner reads it."""
        if key in keys and not too_late:
            too_late.extend((await world.store.jobs.delete(world.caller, job.job_id)).too_late)
        return await revalidate(keys)

    world.start("a")
    await world.advance(5.2)
    monkeypatch.setattr(world.store.runs, "revalidate", recheck_deleted)
    world.start("b")
    await world.advance(0.1)
    world.shards["a"][0].stop()
    await world.advance(0.6)
    assert too_late == [key]
    assert world.arrived == []
    assert world.store._tables.runs[key].run.state is RunState.RUNNING
    await world.advance(5)
    assert world.times == [pytest.approx(6, abs=0.01)]
    assert world.store._tables.runs[key].run.state is RunState.SUCCEEDED


async def test_a_run_that_a_dead_shard_still_settled_continues_from_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome was on the wire when the shard died, and arrives just before the adoption."""
    job = await world.register("*/5 * * * * *", overlap=SKIP)
    world.handler = Failing(1)
    settle, adopt = world.store.runs.settle, world.store.runs.adopt
    on_the_wire: list[Sequence[Settled]] = []
    not_won: set[tuple[UUID, int]] = set()

    async def settle_never(settled: Sequence[Settled]) -> set[RunKey]:
        on_the_wire.append(settled)
        await asyncio.Event().wait()
        raise AssertionError

    async def adopt_too_late(lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        monkeypatch.undo()
        await world.clock.sleep(100_000_000)  # meanwhile what is due is loaded
        await settle(on_the_wire[0])
        answer = await adopt(lease, adoptions)
        not_won.update(answer)
        return answer

    monkeypatch.setattr(world.store.runs, "settle", settle_never)
    monkeypatch.setattr(world.store.runs, "adopt", adopt_too_late)
    world.start("a")
    await world.advance(5.5)
    await world.kill("a")
    world.start("b")
    await world.advance(20)
    runs = await world.runs(job)
    assert not_won == {runs[0].key}
    attempts = [one.attempt for _, one in world.arrived if one.key == runs[0].key]
    assert attempts == [1, 2]  # soon, and not when everything is compared with the database
    assert runs[0].state is RunState.SUCCEEDED
