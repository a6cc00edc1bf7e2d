"""Runs of queues: handed out for credits, watched, reported, given back and cancelled."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.shard.pulling import QUEUE, Process
from tests.unit.shard.world import World

from wheelsched.core.model import QueueTarget, RunState
from wheelsched.core.outcome import Failed, Succeeded, TransportFailure
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Ending, Settled
from wheelsched.ports.work import Attempted, Receipt
from wheelsched.values.duration import SECOND

WORK = QueueTarget(queue=QUEUE)
SOON = RetryPolicy(initial_us=SECOND, max_us=SECOND)


@pytest.fixture
async def process(world: World) -> Process:
    """A process that is connected to a shard, without credits."""
    world.start()
    await world.advance(1)
    process = Process(world)
    process.connect()
    return process


async def test_a_run_is_handed_out_at_its_time(world: World, process: Process) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(5)
    await world.advance(15)
    assert process.times == [10.0]
    content = msgspec.json.decode(process.runs[0].content + b"}")
    assert content["job_id"] == str(job.job_id)
    assert content["queue"] == QUEUE
    assert content["attempt"] == 1
    assert content["fencing_token"] == process.runs[0].attempt.token


async def test_a_hand_out_tells_the_lease_that_the_shard_enforces(
    world: World, process: Process
) -> None:
    await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(11)
    (until_us,) = process.until_us
    handed_out_us = process.runs[0].attempt.key.due_us
    assert 0 <= until_us - handed_out_us - 5 * SECOND < 1_000


async def test_nothing_is_written_before_the_outcome(world: World, process: Process) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(11)
    assert await world.states(job) == [RunState.ARMED]
    assert await process.finish(*process.runs) == [Receipt.WRITTEN]
    (run,) = await world.runs(job)
    assert run.state is RunState.SUCCEEDED
    assert run.attempt == 1
    assert run.lateness_us is not None
    assert run.lateness_us < 1_000
    assert world.shards["a"][0].vitals.runs.in_flight == 0


async def test_without_credits_a_run_waits_and_spends_no_attempt(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    await world.advance(100)
    assert process.runs == []
    process.lend(1)
    await world.advance(0.1)
    assert process.times == [101.0]
    await process.finish(*process.runs)
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


async def test_no_more_runs_are_handed_out_than_credits(world: World, process: Process) -> None:
    await world.register_many(["+10"] * 7, queue=WORK)
    process.lend(3)
    await world.advance(10)
    assert len(process.runs) == 3
    process.lend(2)
    await world.advance(1)
    assert len(process.runs) == 5
    process.lend(100)
    await world.advance(1)
    assert len(set(process.runs)) == 7


async def test_runs_of_one_second_are_handed_out_together(world: World, process: Process) -> None:
    process.lend(10_000)
    await world.register_many(["+10"] * 1_200, queue=WORK)
    await world.advance(12)
    assert process.sizes == [500, 500, 200]
    assert set(process.times) == {10.0}


async def test_a_process_is_told_that_runs_wait(world: World, process: Process) -> None:
    process.lend(0)
    await world.register_many(["+10"] * 30, queue=WORK)
    await world.advance(12)
    assert process.waits[-1] == (QUEUE, 30)
    assert len(process.waits) <= 2
    process.lend(50)
    await world.advance(1)
    assert process.waits[-1] == (QUEUE, 0)
    later = Process(world, QUEUE, "other")
    later.lend(0)
    assert later.waits == []


async def test_a_pool_that_is_new_is_told_that_runs_wait(world: World, process: Process) -> None:
    process.lend(0)
    await world.register("+10", queue=WORK)
    await world.advance(12)
    later = Process(world, QUEUE, "other")
    later.lend(0)
    assert later.waits == [(QUEUE, 1)]


async def test_a_failed_attempt_is_retried_under_a_new_token(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON)
    process.lend(2)
    await world.advance(11)
    first = process.runs[0]
    assert await process.finish(first, outcome=Failed(error="no")) == [Receipt.WRITTEN]
    await world.advance(5)
    second = process.runs[1]
    assert process.attempts == [1, 2]
    assert second.attempt.token > first.attempt.token
    assert await process.finish(first) == [Receipt.STALE]
    assert await process.finish(second) == [Receipt.WRITTEN]
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_an_attempt_that_this_shard_does_not_have_is_unknown(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(11)
    (run,) = process.runs
    assert await process.finish(run) == [Receipt.WRITTEN]
    assert await process.finish(run) == [Receipt.UNKNOWN]
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_outcomes_of_many_runs_are_written_together(world: World, process: Process) -> None:
    jobs = await world.register_many(["+10"] * 50, queue=WORK)
    process.lend(50)
    await world.advance(11)
    assert await process.finish(*process.runs) == [Receipt.WRITTEN] * 50
    assert [await world.states(job) for job in jobs] == [[RunState.SUCCEEDED]] * 50


async def test_a_worker_that_gives_no_sign_of_life_loses_the_run_after_5_s(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON)
    process.lend(5)
    await world.advance(14)
    assert await world.states(job) == [RunState.ARMED]
    await world.advance(3)
    (run,) = await world.runs(job)
    assert run.attempt == 1
    assert run.error == TransportFailure.WORKER_SILENT
    await world.advance(3)
    assert process.attempts == [1, 2]
    assert 15 <= process.times[1] <= 18


async def test_a_heartbeat_keeps_the_run_for_the_timeout_of_its_job(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON, timeout_us=30 * SECOND)
    process.lend(1)
    await world.advance(12)
    await process.beat(*process.runs)
    await world.advance(25)
    assert await world.states(job) == [RunState.ARMED]
    await process.beat(*process.runs)
    await world.advance(25)
    assert await world.states(job) == [RunState.ARMED]
    await world.advance(10)
    (run,) = await world.runs(job)
    assert run.error == TransportFailure.HEARTBEAT_MISSED
    assert run.attempt == 1


async def test_a_heartbeat_may_carry_a_lease_of_its_own(world: World, process: Process) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON, timeout_us=300 * SECOND)
    process.lend(1)
    await world.advance(12)
    await process.beat(*process.runs, lease_us=20 * SECOND)
    await world.advance(15)
    assert await world.states(job) == [RunState.ARMED]
    await world.advance(8)
    (run,) = await world.runs(job)
    assert run.error == TransportFailure.HEARTBEAT_MISSED


async def test_a_worker_with_heartbeats_finishes_at_the_desk(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(12)
    await process.beat(*process.runs)
    await world.advance(60)
    assert await process.finish(*process.runs) == [Receipt.WRITTEN]
    await world.advance(300)
    assert await world.states(job) == [RunState.SUCCEEDED]


@pytest.mark.parametrize("is_failed", [False, True])
async def test_an_outcome_that_the_api_has_written_is_found_in_the_row(
    world: World, process: Process, *, is_failed: bool
) -> None:
    job = await world.register("+10", queue=WORK, retry=SOON)
    process.lend(2)
    await world.advance(11)
    key, token = process.runs[0].attempt
    state = RunState.RETRYING if is_failed else RunState.SUCCEEDED
    retry_at_us = world.now_us() + SECOND if is_failed else None
    ending = Ending(state=state, finished_at_us=world.now_us(), retry_at_us=retry_at_us)
    await world.store.history.answer(world.caller, Settled(key, token, ending))
    await world.advance(10)
    assert process.attempts == ([1, 2] if is_failed else [1])
    assert len(await world.runs(job)) == 1


async def test_a_run_that_is_given_back_waits_again_in_front_under_its_token(
    world: World, process: Process
) -> None:
    await world.register("+10", "first", queue=WORK)
    await world.register("+11", "second", queue=WORK)
    process.lend(1)
    await world.advance(12)
    (first,) = process.runs
    process.desks["a"].give_back([first.attempt])
    await world.advance(1)
    assert process.runs == [first]
    process.lend(1)
    await world.advance(1)
    assert process.runs == [first, first]
    assert await process.finish(first) == [Receipt.WRITTEN]
    process.lend(1)
    await world.advance(1)
    assert len(set(process.runs)) == 2


async def test_a_run_that_is_given_back_has_a_new_delivery_lease(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(13)
    process.desks["a"].give_back([process.runs[0].attempt])
    process.lend(1)
    await world.advance(3)  # past the end of the first lease
    assert await process.finish(process.runs[1]) == [Receipt.WRITTEN]
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


async def test_the_next_worker_does_not_inherit_the_lease_of_the_one_that_gave_back(
    world: World, process: Process
) -> None:
    await world.register("+10", queue=WORK, retry=SOON)
    process.lend(1)
    await world.advance(12)
    await process.beat(*process.runs, lease_us=3_600 * SECOND)
    await world.advance(1)
    process.desks["a"].give_back([process.runs[0].attempt])
    process.lend(2)
    await world.advance(10)  # the next worker sends no sign of life
    assert process.attempts == [1, 1, 2]


async def test_a_run_that_is_given_back_is_not_lost_at_the_end_of_its_first_lease(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(12)
    await process.beat(*process.runs, lease_us=10 * SECOND)  # until 22
    await world.advance(8)
    process.desks["a"].give_back([process.runs[0].attempt])
    await world.advance(1.5)
    process.lend(1)
    await world.advance(3)
    assert await process.finish(process.runs[1]) == [Receipt.WRITTEN]
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


async def test_the_next_owner_does_not_wait_for_a_worker_that_gave_back(
    world: World, process: Process
) -> None:
    await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(12)
    await process.beat(*process.runs, lease_us=3_600 * SECOND)
    process.desks["a"].give_back([process.runs[0].attempt])
    await world.advance(1)
    await world.crash("a")
    world.start("b")
    process.lend(1, "b")
    await world.advance(30)
    assert process.attempts == [1, 1]


async def test_a_run_that_is_given_back_after_an_edit_is_built_again(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(11)
    edited = replace(job, name="renamed", version=2)
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(2)
    process.desks["a"].give_back([process.runs[0].attempt])
    process.lend(1)
    await world.advance(1)
    first, second = process.runs
    assert first.attempt == second.attempt
    assert msgspec.json.decode(second.content + b"}")["job_name"] == "renamed"


async def test_a_cancelled_run_is_cancelled_at_its_worker(world: World, process: Process) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(11)
    (run,) = process.runs
    await world.store.history.cancel(world.caller, run.attempt.key)
    await world.advance(1)
    assert process.cancelled == [run.attempt]
    assert await process.finish(run) == [Receipt.UNKNOWN]
    assert await world.states(job) == [RunState.CANCELLED]


async def test_a_waiting_run_that_is_cancelled_is_not_handed_out(
    world: World, process: Process
) -> None:
    job = await world.register("+10", queue=WORK)
    await world.advance(20)
    (run,) = await world.runs(job)
    await world.store.history.cancel(world.caller, run.key)
    await world.advance(2)
    assert await process.desks["a"].waiting(world.tenant_id) == []
    process.lend(1)
    await world.advance(1)
    assert process.runs == []


async def test_a_later_run_cancels_an_earlier_one_with_overlap_cancel(
    world: World, process: Process
) -> None:
    overlap = OverlapPolicy(policy=OnOverlap.CANCEL)
    job = await world.register("every 10s", queue=WORK, overlap=overlap, timeout_us=60 * SECOND)
    process.lend(2)
    await world.advance(11)
    await process.beat(*process.runs)
    await world.advance(10)
    first, second = process.runs
    assert process.cancelled == [first.attempt]
    assert await process.finish(first, outcome=Succeeded()) == [Receipt.UNKNOWN]
    assert await process.finish(second) == [Receipt.WRITTEN]
    assert (await world.states(job))[:2] == [RunState.CANCELLED, RunState.SUCCEEDED]


async def test_a_handed_out_run_blocks_the_next_one_of_its_job(
    world: World, process: Process
) -> None:
    overlap = OverlapPolicy(policy=OnOverlap.QUEUE)
    await world.register("every 10s", queue=WORK, overlap=overlap, timeout_us=60 * SECOND)
    process.lend(5)
    await world.advance(11)
    await process.beat(*process.runs)
    await world.advance(10)
    assert len(process.runs) == 1
    await process.finish(process.runs[0])
    await world.advance(0.5)
    assert len(process.runs) == 2


async def test_outcomes_of_other_attempts_change_nothing(world: World, process: Process) -> None:
    job = await world.register("+10", queue=WORK)
    process.lend(1)
    await world.advance(11)
    key, token = process.runs[0].attempt
    receipts = await process.desks["a"].finish([(Attempted(key, token + 1), Succeeded())])
    assert receipts == [Receipt.UNKNOWN]
    assert await world.states(job) == [RunState.ARMED]
