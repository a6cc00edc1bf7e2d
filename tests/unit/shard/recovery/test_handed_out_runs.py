"""Runs that were handed out when their shard crashed, stopped or handed its partitions over."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.shard.pulling import QUEUE, Process
from tests.unit.shard.workers import accepting
from tests.unit.shard.world import START_US, World

from wheelsched.config import ShardConfig
from wheelsched.core.model import QueueTarget, RunKey, RunState, Trigger
from wheelsched.core.outcome import Failed
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Claim, Lease, RequestedRun
from wheelsched.ports.work import Receipt
from wheelsched.values.duration import SECOND

WORK = QueueTarget(queue=QUEUE)
SOON = RetryPolicy(initial_us=SECOND, max_us=SECOND)


async def take_over(world: World, process: Process, lent: int = 5) -> float:
    """Crashes the shard; returns when another one has taken over."""
    await world.crash("a")
    world.start("b")
    process.connect("b")
    process.lend(lent, "b")
    while not world.shards["b"][0].vitals.ownership.takeovers:
        await world.advance(0.1)
    return world.now_s


@pytest.fixture
async def process(world: World) -> Process:
    """A process that is connected to a shard."""
    world.start()
    process = Process(world)
    process.connect()
    return process


async def test_a_run_that_may_be_in_other_hands_is_handed_out_after_a_delivery_lease(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(10.5)
    taken_s = await take_over(world, process)
    await world.advance(8)
    first, second = process.runs
    assert first.attempt.key == second.attempt.key
    assert second.attempt.token > first.attempt.token
    assert 4.9 <= process.times[1] - taken_s <= 7.5
    assert process.attempts == [1, 1]
    assert await process.finish(first, name="b") == [Receipt.STALE]
    assert await process.finish(second, name="b") == [Receipt.WRITTEN]
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_the_outcome_of_the_old_worker_counts_meanwhile(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON)
    process.lend(1)
    await world.advance(10.5)
    await take_over(world, process)
    await world.advance(2)
    failed = Failed(error="not today")
    assert await process.finish(process.runs[0], outcome=failed, name="b") == [Receipt.WRITTEN]
    await world.advance(3)
    assert process.attempts == [1, 2]
    assert await process.finish(process.runs[1], name="b") == [Receipt.WRITTEN]
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


async def test_a_worker_with_heartbeats_keeps_its_run_across_a_crash(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK, timeout_us=30 * SECOND)
    process.lend(1)
    await world.advance(10.5)
    await process.beat(*process.runs)
    await take_over(world, process)
    for _ in range(4):
        await world.advance(15)
        await process.beat(*process.runs)
    assert len(process.runs) == 1
    assert await process.finish(*process.runs, name="b") == [Receipt.WRITTEN]
    await world.advance(60)
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_a_run_that_waited_for_a_worker_waits_a_delivery_lease_too(
    world: World, process: Process
) -> None:
    """Its new owner cannot know that it was not handed out."""
    await world.register("+10", queue=WORK)
    await world.advance(10.5)
    taken_s = await take_over(world, process)
    await world.advance(8)
    assert len(process.runs) == 1
    assert 4.9 <= process.times[0] - taken_s <= 7.5


async def test_a_run_that_was_not_due_does_not_wait(world: World, process: Process) -> None:
    world.start("b")
    await world.register_many(["+30"] * 20, queue=WORK)
    process.lend(20)
    process.lend(20, "b")
    await world.advance(28)  # they are armed
    await world.crash("a")
    await world.advance(5)
    assert len(process.runs) == 20
    assert process.times == [30.0] * 20


async def test_a_run_that_was_released_unsent_does_not_wait(world: World, process: Process) -> None:
    await world.register("+10", queue=WORK)
    await world.advance(12)
    await world.stop("a")
    world.start("b")
    process.lend(1, "b")
    before_s = world.now_s
    await world.advance(5)
    assert process.times[0] - before_s < 3


@pytest.mark.parametrize("is_failed", [True, False])
async def test_a_run_that_was_handed_out_is_carried_through_a_stop(
    world: World, process: Process, *, is_failed: bool
) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON)
    process.lend(1)
    await world.advance(10.5)
    world.start("b")
    await world.advance(2)
    shard, task = world.shards.pop("a")
    shard.stop()
    await world.advance(1)
    assert not task.done()
    outcome = Failed(error="no") if is_failed else None
    assert await process.finish(*process.runs, outcome=outcome) == [Receipt.WRITTEN]
    await world.advance(1)
    assert task.done()
    process.lend(1, "b")
    await world.advance(5)
    assert process.attempts == ([1, 2] if is_failed else [1])
    assert len(await world.runs(job)) == 1


async def test_a_shard_of_an_application_does_not_wait_for_workers_elsewhere(world: World) -> None:
    """They report to the database, and the next owner leaves them the run meanwhile."""
    world.start("a", ShardConfig(drain_us=30 * SECOND, waits_for_workers=False))
    process = Process(world)
    job = await world.register("+10", queue=WORK, timeout_us=60 * SECOND)
    process.lend(1)
    await world.advance(10.5)
    await process.beat(*process.runs)
    world.start("b")
    process.lend(5, "b")
    await world.advance(2)
    stopped_s = world.now_s
    await world.stop("a")
    assert world.now_s - stopped_s < 2
    await world.advance(20)
    assert len(process.runs) == 1
    assert await process.finish(*process.runs, name="b") == [Receipt.WRITTEN]
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_a_worker_with_heartbeats_keeps_its_run_after_its_carrier_has_gone(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK, timeout_us=60 * SECOND)
    process.lend(1)
    await world.advance(10.5)
    await process.beat(*process.runs)
    world.start("b")
    process.connect("b")
    process.lend(5, "b")
    await world.advance(2)
    await world.stop("a")  # after its longest drain
    await world.advance(20)
    await process.beat(*process.runs)
    await world.advance(20)
    assert len(process.runs) == 1
    assert await process.finish(*process.runs, name="b") == [Receipt.WRITTEN]
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_outcomes_are_unknown_while_the_shard_has_no_lease(
    world: World, process: Process
) -> None:
    await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(10.5)
    await world.crash("a")
    assert await process.desks["a"].finish(
        [(run.attempt, Failed(error="no")) for run in process.runs]
    ) == [Receipt.UNKNOWN]


async def test_runs_that_another_may_have_handed_out_are_left_to_the_next_owner(
    world: World, process: Process
) -> None:
    """They are not carried: that would make an attempt of runs that nobody has sent."""
    jobs = await world.register_many(["+10"] * 20, queue=WORK)
    await world.advance(10.5)  # they wait for a worker
    await take_over(world, process)
    world.start("c")
    process.lend(20, "b")
    process.lend(20, "c")
    while not world.shards["b"][0].vitals.ownership.handovers:
        await world.advance(0.1)
    for job in jobs:
        assert await world.states(job) == [RunState.ARMED]
    while len(process.runs) < len(jobs):
        await world.advance(0.1)
    assert {run.attempt.key.job_id for run in process.runs} == {job.job_id for job in jobs}
    assert set(process.attempts) == {1}


@pytest.mark.parametrize("policy", [OnOverlap.QUEUE, OnOverlap.SKIP])
async def test_a_run_that_another_may_have_handed_out_keeps_later_ones_back_in_a_handover(
    world: World, process: Process, policy: OnOverlap
) -> None:
    """Its worker may still have it, whoever owns the partition."""
    overlap = OverlapPolicy(policy=policy)
    await world.register_many(["*/5 * * * * *"] * 20, queue=WORK, overlap=overlap)
    process.lend(20)
    await world.advance(7)
    assert len(process.runs) == 20
    taken_s = await take_over(world, process)
    process.lend(20, "b")
    await world.advance(13.6 - world.now_s)
    world.start("c")
    process.lend(40, "c")
    while not world.shards["b"][0].vitals.ownership.handovers:
        await world.advance(0.1)
    assert 14 < world.now_s < 15  # runs that are due at 15 s could be carried
    await world.advance(taken_s + 4.9 - world.now_s)
    assert world.now_s > 15
    assert len(process.runs) == 20


async def test_a_run_of_a_dead_carrier_is_carried_while_it_waits_for_a_worker(
    world: World, process: Process
) -> None:
    jobs = await world.register_many(["+10"] * 20, queue=WORK)
    process.lend(20)
    await world.advance(10.5)
    world.start("b")
    while not world.shards["a"][0].vitals.ownership.handovers:
        await world.advance(0.1)
    await world.crash("a")  # some of them were carried
    await world.advance(15)
    world.start("c")
    while not world.shards["b"][0].vitals.ownership.handovers:
        await world.advance(0.1)
    process.runs.clear()
    process.lend(20, "b")
    process.lend(20, "c")
    await world.advance(10)
    assert {run.attempt.key.job_id for run in process.runs} == {job.job_id for job in jobs}


@pytest.mark.parametrize("policy", [OnOverlap.SKIP, OnOverlap.QUEUE])
async def test_a_run_that_waited_for_a_worker_goes_before_those_that_wait_for_it(
    world: World, process: Process, policy: OnOverlap
) -> None:
    job = await world.register("+10", queue=WORK, overlap=OverlapPolicy(policy=policy))
    await world.advance(10.5)
    await take_over(world, process)
    requested = RequestedRun(key=RunKey(job.job_id, world.now_us()), trigger=Trigger.MANUAL)
    await world.store.history.request(world.caller, [requested])
    await world.advance(8)
    assert [run.attempt.key.due_us for run in process.runs] == [START_US + 10 * SECOND]
    assert await process.finish(*process.runs, name="b") == [Receipt.WRITTEN]
    await world.advance(1)
    assert [run.attempt.key for run in process.runs[1:]] == [requested.key]


@pytest.mark.parametrize("due_s", [0.2, 2.5], ids=["waiting", "about to be due"])
async def test_no_run_starts_beside_one_that_may_be_in_other_hands_in_a_hand_over(
    world: World, process: Process, due_s: float
) -> None:
    """The shard has more to hand over: there is time for a run to start."""
    world.handler = accepting
    overlap = OverlapPolicy(policy=OnOverlap.QUEUE)
    job = await world.register("+10", queue=WORK, overlap=overlap)
    await world.register("+9", "accepted")
    process.lend(1)
    await world.advance(10.5)
    await take_over(world, process)
    requested = RunKey(job.job_id, world.now_us() + int(due_s * SECOND))
    await world.store.history.request(
        world.caller, [RequestedRun(key=requested, trigger=Trigger.MANUAL)]
    )
    await world.advance(2)
    await world.stop("b")
    world.start("c")
    process.lend(5, "c")
    await world.advance(2)
    assert len(process.runs) == 1
    assert await process.finish(*process.runs, name="c") == [Receipt.WRITTEN]
    await world.advance(1)
    assert [run.attempt.key for run in process.runs[1:]] == [requested]


async def test_a_run_whose_lease_ends_as_its_partition_is_handed_over_goes_to_the_next_owner(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hand-over waits for a claim meanwhile, and the adoption for the hand-over."""
    arm = world.store.timers.arm

    async def arm_slowly(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        await world.clock.sleep(4 * SECOND * 1_000)
        return await arm(lease, claims)

    jobs = await world.register_many(["+10"] * 20, queue=WORK)
    await world.advance(10.5)  # they wait for a worker
    await take_over(world, process)
    await world.advance(4)
    monkeypatch.setattr(world.store.timers, "arm", arm_slowly)
    await world.register(f"+{world.now_s + 3}", "claimed")
    world.start("c")
    process.lend(20, "c")
    while not world.shards["b"][0].vitals.ownership.handovers:
        await world.advance(0.1)
    for job in jobs:
        assert await world.states(job) == [RunState.ARMED]
    process.lend(20, "b")
    while len(process.runs) < len(jobs):
        await world.advance(0.1)
    assert {run.attempt.key.job_id for run in process.runs} == {job.job_id for job in jobs}
    assert set(process.attempts) == {1}


async def test_a_run_whose_lease_ends_while_the_shard_compares_is_found_by_the_next_owner(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard marks up to where all runs have ended, before it can adopt the run."""
    list_unfinished = world.store.runs.list_unfinished

    async def read_slowly(*arguments: Any, **named: Any) -> list[RunKey]:
        await world.clock.sleep(2 * SECOND * 1_000)
        return await list_unfinished(*arguments, **named)

    await world.register("+10", queue=WORK)
    await world.advance(10.5)
    world.config = ShardConfig(refresh_us=SECOND)
    await take_over(world, process, lent=0)
    monkeypatch.setattr(world.store.runs, "list_unfinished", read_slowly)
    await world.advance(8)
    assert process.runs == []
    await world.crash("b")
    monkeypatch.undo()
    world.start("c")
    process.lend(1, "c")
    await world.advance(20)
    assert len(process.runs) == 1
