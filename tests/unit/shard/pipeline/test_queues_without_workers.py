"""Runs that wait for workers: they die in time, and hold up nothing else."""

from collections import Counter
from collections.abc import Collection

import pytest
from msgspec.structs import replace
from tests.unit.shard.pulling import QUEUE, Process
from tests.unit.shard.world import START_US, World

from wheelsched.config import FairnessConfig, QueueConfig, ShardConfig
from wheelsched.core.model import QueueTarget, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.policies.policy import MisfirePolicy, OnMisfire, OnOverlap, OverlapPolicy
from wheelsched.ports import Checked, RequestedRun
from wheelsched.ports.work import Receipt
from wheelsched.values.duration import MINUTE, SECOND

WORK = QueueTarget(queue=QUEUE)
BRIEF = QueueTarget(queue=QUEUE, claim_within_us=30 * SECOND)
STRICT = MisfirePolicy(policy=OnMisfire.SKIP, grace_us=5 * SECOND)
SMALL = ShardConfig(queue=QueueConfig(idle_runs=10, max_parked=50))


async def test_a_run_that_no_worker_claims_in_time_is_dead(world: World) -> None:
    job = await world.register("+10", queue=BRIEF)
    world.start()
    await world.advance(39)
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.ARMED, 0)
    await world.advance(3)
    (run,) = await world.runs(job)
    assert (run.state, run.attempt, run.started_at_us) == (RunState.DEAD, 0, None)
    assert run.error == "no worker claimed the run within 30s"


async def test_each_job_has_its_own_limit_of_the_wait(world: World) -> None:
    patient = await world.register("+10", "patient", queue=WORK)
    brief = await world.register("+11", "brief", queue=BRIEF)
    world.start()
    await world.advance(43)
    assert await world.states(brief) == [RunState.DEAD]
    assert await world.states(patient) == [RunState.ARMED]


async def test_a_dead_run_makes_way_for_the_next_of_its_job(world: World) -> None:
    overlap = OverlapPolicy(policy=OnOverlap.QUEUE)
    job = await world.register("every 20s", queue=BRIEF, overlap=overlap)
    world.start()
    await world.advance(52)
    assert await world.states(job) == [RunState.DEAD, RunState.ARMED]
    process = Process(world)
    process.lend(5)
    await world.advance(0.5)
    assert [run.attempt.key.due_us for run in process.runs] == [
        world.now_us() // SECOND * SECOND - 12 * SECOND
    ]


async def test_a_dead_run_can_be_retried(world: World) -> None:
    job = await world.register("+10", queue=BRIEF)
    world.start()
    await world.advance(45)
    (run,) = await world.runs(job)
    await world.store.history.retry(world.caller, [run.key])
    process = Process(world)
    process.lend(1)
    await world.advance(5)
    assert await process.finish(*process.runs) == [Receipt.WRITTEN]
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_a_queue_without_workers_delays_no_callback(world: World) -> None:
    config = ShardConfig(
        fairness=FairnessConfig(in_flight=4, in_flight_per_tenant=4, in_flight_per_origin=4)
    )
    await world.register_many(["+10"] * 100, "waiting", queue=WORK)
    await world.register_many(["+10"] * 20, "called")
    world.start(config=config)
    await world.advance(12)
    assert world.times == [10.0] * 20


async def test_a_queue_without_workers_leaves_room_to_arm_others(world: World) -> None:
    config = replace(SMALL, max_armed=40)
    await world.register_many([f"+{10 + number / 10}" for number in range(60)], "w", queue=WORK)
    await world.register_many(["+30"] * 20, "called")
    world.start(config=config)
    await world.advance(32)
    assert world.times == [30.0] * 20


async def test_parked_runs_go_in_their_order_and_spend_no_attempt(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number}" for number in range(40)], queue=WORK)
    shard = world.start(config=SMALL)
    process = Process(world)
    process.connect()
    await world.advance(60)
    (waiting,) = await process.desks["a"].waiting(world.tenant_id)
    assert (waiting.queue, waiting.count) == (QUEUE, 40)
    assert waiting.oldest_us == min(job.created_at_us for job in jobs) + 10 * SECOND
    ((label, depth),) = shard.vitals.runs.queues.items()
    assert label == QUEUE
    assert depth.runs == 40
    assert depth.oldest_age_us // SECOND in (49, 50)
    for _ in range(40):
        process.lend(2)
        await world.advance(1)
        await process.finish(*process.runs[-2:])
    due_us = [run.attempt.key.due_us for run in process.runs]
    assert due_us == sorted(due_us)
    assert [run.attempt for runs in map(world.runs, jobs) for run in await runs] == [1] * 40
    assert [await world.states(job) for job in jobs] == [[RunState.SUCCEEDED]] * 40


async def test_parked_runs_die_in_time(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number}" for number in range(30)], queue=BRIEF)
    world.start(config=SMALL)
    await world.advance(60)
    states = [(await world.states(job))[0] for job in jobs]
    assert states[:18] == [RunState.DEAD] * 18
    assert states[21:] == [RunState.ARMED] * 9
    await world.advance(15)
    assert {(await world.states(job))[0] for job in jobs} == {RunState.DEAD}


async def test_runs_beyond_those_that_can_be_parked_are_dead(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number / 10}" for number in range(70)], queue=WORK)
    world.start(config=SMALL)
    await world.advance(30)
    dead = [run for job in jobs for run in await world.runs(job) if run.state is RunState.DEAD]
    assert len(dead) == 10
    assert dead[0].error == "no worker claimed the run: too many runs of its queue or tenant wait"


async def test_the_queues_of_a_tenant_have_one_limit_together(world: World) -> None:
    """Ten runs of each queue wait with their requests; of the others, 30 can be parked."""
    config = ShardConfig(queue=QueueConfig(idle_runs=10, max_parked=50, max_parked_of_tenant=30))
    times = [f"+{10 + number / 10}" for number in range(30)]
    jobs = [
        *await world.register_many(times, "one", queue=WORK),
        *await world.register_many(times, "two", queue=QueueTarget(queue="other")),
    ]
    world.start(config=config)
    await world.advance(30)
    states = [(await world.states(job))[0] for job in jobs]
    assert states.count(RunState.DEAD) == 60 - 20 - 30
    process = Process(world, QUEUE, "other")
    process.lend(100)
    await world.advance(3)
    assert len(process.runs) == 50
    await process.finish(*process.runs)
    process.desks["a"].forget(process.pool)
    later = await world.register_many(["+60"] * 45, "later", queue=WORK)
    await world.advance(40)
    states = [(await world.states(job))[0] for job in later]
    assert states.count(RunState.DEAD) == 45 - 30  # they come together, so none waits otherwise


async def test_a_parked_run_that_is_cancelled_is_not_handed_out(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number}" for number in range(20)], queue=WORK)
    world.start(config=SMALL)
    await world.advance(35)
    (run,) = await world.runs(jobs[-1])
    await world.store.history.cancel(world.caller, run.key)
    await world.advance(2)
    process = Process(world)
    process.lend(100)
    await world.advance(3)
    assert len(process.runs) == 19
    assert await world.states(jobs[-1]) == [RunState.CANCELLED]


async def test_a_parked_run_is_built_from_the_current_job(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number}" for number in range(20)], queue=WORK)
    world.start(config=SMALL)
    await world.advance(35)
    edited = replace(jobs[-1], name="renamed", version=2)
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(2)
    process = Process(world)
    process.lend(100)
    await world.advance(3)
    assert len(process.runs) == 20
    assert b'"job_name":"renamed"' in process.runs[-1].content


async def test_withdrawn_runs_do_not_count_as_waiting(world: World) -> None:
    overlap = OverlapPolicy(policy=OnOverlap.CANCEL)
    await world.register("every 5s", queue=WORK, overlap=overlap)
    world.start()
    process = Process(world)
    process.connect()
    await world.advance(62)
    (waiting,) = await process.desks["a"].waiting(world.tenant_id)
    assert waiting.count == 1


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_runs_that_wait_are_handed_over(world: World, *, is_stopped: bool) -> None:
    job = await world.register("+10", queue=WORK)
    world.start("a")
    await world.advance(20)
    process = Process(world)
    if is_stopped:
        before_s = world.now_s
        await world.stop("a")
        assert world.now_s - before_s < 5
        world.start("b")
    else:
        world.start("b")
        await world.advance(10)
        process.connect("a")
        process.connect("b")
        (waiting,) = [
            *await process.desks["a"].waiting(world.tenant_id),
            *await process.desks["b"].waiting(world.tenant_id),
        ]
        assert waiting.count == 1
    await world.advance(5)
    for name in world.shards:
        process.lend(1, name)
    await world.advance(1)
    assert len(process.runs) == 1  # it does not wait for a delivery lease
    assert {len(await world.runs(job))} == {1}


async def test_a_run_that_waits_past_its_grace_is_handed_over(world: World) -> None:
    """It had reached its queue in time, so it has not misfired."""
    job = await world.register("+10", queue=WORK, misfire=STRICT)
    world.start("a")
    await world.advance(20)
    await world.stop("a")
    world.start("b")
    await world.advance(5)
    assert await world.states(job) == [RunState.ARMED]
    process = Process(world)
    process.lend(1, "b")
    await world.advance(1)
    assert len(process.runs) == 1


async def test_a_run_that_comes_due_while_there_is_no_shard_misfires(world: World) -> None:
    job = await world.register("+11", queue=WORK, misfire=STRICT)
    world.start("a")
    await world.advance(9.5)
    assert await world.states(job) == [RunState.ARMED]
    await world.stop("a")
    await world.advance(20)
    world.start("b")
    await world.advance(5)
    (run,) = await world.runs(job)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.MISFIRE_SKIP)


async def test_a_run_behind_another_one_follows_its_misfire_policy_in_a_hand_over(
    world: World,
) -> None:
    """It waits for the run before it, and not in its queue."""
    overlap = OverlapPolicy(policy=OnOverlap.QUEUE)
    job = await world.register("every 10s", queue=WORK, misfire=STRICT, overlap=overlap)
    world.start("a")
    await world.advance(29)
    await world.stop("a")
    world.start("b")
    await world.advance(0.5)
    first, second, *_ = sorted(await world.runs(job), key=lambda run: run.due_us)
    assert (first.state, second.skip_reason) == (RunState.ARMED, SkipReason.MISFIRE_SKIP)


async def test_a_run_that_is_edited_past_its_grace_waits_on(world: World) -> None:
    job = await world.register("+10", queue=WORK, misfire=STRICT)
    world.start("a")
    await world.advance(20)
    edited = replace(job, name="renamed", version=2)
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(2)
    assert await world.states(job) == [RunState.ARMED]
    process = Process(world)
    process.lend(1)
    await world.advance(1)
    (run,) = process.runs
    assert b'"job_name":"renamed"' in run.content


async def test_a_run_on_time_is_not_delayed_by_a_full_late_lane(world: World) -> None:
    misfire = MisfirePolicy(grace_us=SECOND, window_us=30 * MINUTE)
    await world.register_many(["+10"] * 5, "late", queue=WORK, misfire=misfire)
    await world.advance(60)
    await world.register("+70", "on-time", queue=WORK)
    world.start()
    await world.advance(15)
    process = Process(world)
    process.lend(1)
    await world.advance(0.1)
    assert [run.attempt.key.due_us % (100 * SECOND) for run in process.runs] == [70 * SECOND]


async def test_parked_runs_come_back_at_the_speed_of_the_workers(world: World) -> None:
    config = ShardConfig(queue=QueueConfig(idle_runs=100))
    await world.register_many([f"+{10 + number // 100}" for number in range(1_000)], queue=WORK)
    world.start(config=config)
    await world.advance(25)
    process = Process(world)
    process.lend(1_000)
    await world.advance(2)
    assert len(set(process.runs)) == len(process.runs) == 1_000


async def test_a_parked_run_that_is_given_back_waits_anew(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number}" for number in range(30)], queue=BRIEF)
    world.start(config=SMALL)
    await world.advance(40)
    process = Process(world)
    process.lend(100)
    await world.advance(2)
    *others, last = process.runs
    assert last.attempt.key.job_id == jobs[-1].job_id
    await process.beat(last, lease_us=60 * SECOND)
    await process.finish(*others)
    process.desks["a"].forget(process.pool)
    await world.advance(BRIEF.claim_within_us / SECOND)
    process.desks["a"].give_back([last.attempt])
    await world.advance(20)
    process.lend(1)
    await world.advance(1)
    assert process.runs[-1] is last
    assert await process.finish(last) == [Receipt.WRITTEN]


async def test_without_hints_a_run_is_read_again_only_for_a_credit(world: World) -> None:
    jobs = await world.register_many(["+10"] * 100, queue=BRIEF)
    world.start()
    process = Process(world)
    process.connect()
    await world.advance(12)
    read: list[RunKey] = []
    revalidate = world.store.runs.revalidate

    async def note(keys: Collection[RunKey]) -> list[Checked]:
        read.extend(keys)
        return await revalidate(keys)

    world.store.runs.revalidate = note  # type: ignore[method-assign]
    world.links["a"].is_deaf = True
    for _ in range(10):
        process.lend(1)
        await world.advance(1.5)
        await process.finish(process.runs[-1])
    assert len(process.runs) == 10
    assert len(read) <= 100
    (cancelled,) = await world.runs(jobs[-1])
    await world.store.history.cancel(world.caller, cancelled.key)
    await world.advance(20)
    states = Counter([(await world.states(job))[0] for job in jobs])
    assert states[RunState.SUCCEEDED] == 10
    assert states[RunState.DEAD] >= 89  # each waited no longer than it may
    assert RunState.ARMED not in states


@pytest.mark.parametrize("policy", [OnOverlap.SKIP, OnOverlap.QUEUE])
async def test_an_edited_run_goes_before_those_that_wait_for_it(
    world: World, policy: OnOverlap
) -> None:
    job = await world.register("+10", queue=WORK, overlap=OverlapPolicy(policy=policy))
    world.start(config=ShardConfig(refresh_us=10 * SECOND))
    await world.advance(11)
    world.link.is_deaf = True
    await world.advance(0.5)
    edited = replace(job, version=job.version + 1)
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    requested = RequestedRun(key=RunKey(job.job_id, world.now_us()), trigger=Trigger.MANUAL)
    await world.store.history.request(world.caller, [requested])
    await world.advance(20)  # it is armed as its job is now
    world.link.is_deaf = False
    await world.advance(5)
    process = Process(world)
    process.lend(5)
    await world.advance(1)
    assert [run.attempt.key.due_us for run in process.runs] == [START_US + 10 * SECOND]
    assert await process.finish(*process.runs) == [Receipt.WRITTEN]
    await world.advance(1)
    assert [run.attempt.key for run in process.runs[1:]] == [requested.key]
