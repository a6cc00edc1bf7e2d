"""The whole pipeline on the store in memory, in virtual time: what a user is promised."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.unit.shard.world import World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core import overlap
from wheelsched.core.duration import SECOND
from wheelsched.core.model import JobState, RunKey, RunState, SkipReason, Target, Trigger
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Succeeded
from wheelsched.core.policy import (
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.core.request import trigger
from wheelsched.ports import Callback, Claim, Lease, RequestedRun, Route, Settled


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


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
    world.line.is_deaf = True
    await world.register("+90")
    await world.advance(100)
    assert world.times == [pytest.approx(90, abs=0.001)]


async def test_a_pause_reaches_a_run_that_is_armed(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(3.9)
    acknowledged = await world.store.jobs.pause(world.caller, job.job_id)
    assert acknowledged.too_late == ()
    await world.advance(10)
    assert world.times == []
    armed = [run.skip_reason for run in await world.runs(job)]
    assert armed in ([], [SkipReason.PAUSED])


async def test_a_change_is_heeded_while_the_claim_is_not_answered(world: World) -> None:
    job = await world.register("+5")
    arm = world.store.timers.arm

    async def arm_slowly(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        lost = await arm(lease, claims)
        await world.clock.sleep(200_000_000)
        return lost

    world.store.timers.arm = arm_slowly  # type: ignore[method-assign] # this once
    world.start(config=ShardConfig(lead=LeadConfig(least_us=3 * SECOND)))
    while not await world.states(job):
        await world.advance(0.01)
    acknowledged = await world.store.jobs.pause(world.caller, job.job_id)
    assert acknowledged.too_late == ()
    await world.advance(5)
    assert world.times == []


async def test_a_pause_holds_without_hints_too(world: World) -> None:
    job = await world.register("+5", misfire=MisfirePolicy())
    world.start()
    await world.advance(3.5)
    world.line.is_deaf = True
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(10)
    assert world.times == []


async def test_an_edit_reaches_a_run_that_is_armed(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(4.2)
    edited = replace(
        job, version=job.version + 1, target=Target(url="http://elsewhere.example/hook")
    )
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(2)
    (sent,) = world.dispatcher.sent
    assert sent.route.target.url == "http://elsewhere.example/hook"
    assert world.times == [pytest.approx(5, abs=0.001)]


async def test_a_deleted_job_does_not_fire(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(3.9)
    await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(10)
    assert world.times == []


async def test_a_cancelled_run_does_not_fire(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(4.5)
    (run,) = await world.runs(job)
    await world.store.history.cancel(world.caller, run.key)
    await world.advance(10)
    assert world.times == []
    assert await world.states(job) == [RunState.CANCELLED]


def failing(times: int) -> "Failing":
    return Failing(times)


class Failing:
    """A worker that fails so often, and then succeeds."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def __call__(self, _: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        self.left -= 1
        if self.left >= 0:
            return [Failed(error="not today", http_status=503)] * len(callbacks)
        return [Succeeded(http_status=200)] * len(callbacks)


async def test_a_failed_run_is_tried_again_with_the_same_key_and_a_greater_token(
    world: World,
) -> None:
    world.handler = failing(2)
    job = await world.register("+5", retry=RetryPolicy(initial_us=SECOND))
    world.start()
    await world.advance(20)
    callbacks = [callback for _, callback in world.arrived]
    assert [callback.attempt for callback in callbacks] == [1, 2, 3]
    assert len({callback.idempotency_key for callback in callbacks}) == 1
    tokens = [callback.token for callback in callbacks]
    assert tokens == sorted(set(tokens))
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 3)


async def test_attempts_come_to_an_end(world: World) -> None:
    world.handler = failing(99)
    job = await world.register("+5", retry=RetryPolicy(max_attempts=3, initial_us=SECOND))
    world.start()
    await world.advance(60)
    assert len(world.arrived) == 3
    assert await world.states(job) == [RunState.DEAD]


async def test_a_run_whose_job_is_deleted_while_it_is_sent_has_no_further_attempt(
    world: World,
) -> None:
    async def fail_later(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        await world.clock.sleep(2 * 10**9)
        return [Failed(error="not today", http_status=503)] * len(callbacks)

    world.handler = fail_later
    job = await world.register("+5", retry=RetryPolicy(initial_us=SECOND))
    world.start()
    await world.advance(6)
    await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(10)
    assert len(world.arrived) == 1
    assert await world.states(job) == [RunState.CANCELLED]


async def gone(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
    return [Gone(error="no more")] * len(callbacks)


async def test_a_worker_that_wants_no_more_pauses_the_job(world: World) -> None:
    world.handler = gone
    job = await world.register("*/5 * * * * *")
    world.start()
    await world.advance(30)
    assert len(world.arrived) == 1
    assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.PAUSED


async def accepting(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
    return [Accepted()] * len(callbacks)


async def test_an_accepted_run_is_the_workers_while_it_is_heard_of(world: World) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=10 * SECOND)
    world.start()
    await world.advance(8)
    (_, callback), *_ = world.arrived
    for _ in range(4):
        await world.advance(4)
        assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
    assert await world.states(job) == [RunState.RUNNING]
    done = Settled(key=callback.key, token=callback.token, state=RunState.SUCCEEDED)
    assert await world.store.history.answer(world.caller, done)
    await world.advance(60)
    assert len(world.arrived) == 1
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_a_silent_worker_has_failed(world: World) -> None:
    world.handler = accepting
    job = await world.register(
        "+5", timeout_us=10 * SECOND, retry=RetryPolicy(max_attempts=2, initial_us=SECOND)
    )
    world.start()
    await world.advance(60)
    assert [callback.attempt for _, callback in world.arrived] == [1, 2]
    (run,) = await world.runs(job)
    assert run.state is RunState.DEAD
    assert run.error is not None
    assert "silent" in run.error


class Slow:
    """A worker that takes so many seconds."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world = world
        self._seconds = seconds

    async def __call__(self, _: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        await self._world.clock.sleep(int(self._seconds * 1e9))
        return [Succeeded(http_status=200)] * len(callbacks)


async def test_overlap_skip_never_has_two(world: World) -> None:
    world.handler = Slow(world, 12)
    job = await world.register("*/5 * * * * *")
    world.start()
    await world.advance(41)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 20, 35)]
    skipped = [run.skip_reason for run in await world.runs(job) if run.skip_reason]
    assert skipped == [SkipReason.OVERLAP] * 5


async def test_overlap_queue_runs_them_one_after_the_other(world: World) -> None:
    world.handler = Slow(world, 7)
    await world.register("*/5 * * * * *", overlap=OverlapPolicy(policy=OnOverlap.QUEUE))
    world.start()
    await world.advance(27)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 12, 19, 26)]
    assert [callback.key.due_us for _, callback in world.arrived] == sorted(
        callback.key.due_us for _, callback in world.arrived
    )


async def test_overlap_cancel_ends_the_older_run(world: World) -> None:
    world.handler = Slow(world, 7)
    job = await world.register("*/5 * * * * *", overlap=OverlapPolicy(policy=OnOverlap.CANCEL))
    world.start()
    await world.advance(13)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 10)]
    assert (await world.states(job))[0] is RunState.CANCELLED


async def test_overlap_allow_runs_them_beside_each_other(world: World) -> None:
    world.handler = Slow(world, 7)
    await world.register("*/5 * * * * *", overlap=OverlapPolicy(policy=OnOverlap.ALLOW))
    world.start()
    await world.advance(16)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 10, 15)]


async def test_a_batch_goes_out_in_one_request(world: World) -> None:
    await world.register_many(["+5"] * 25, batch=10)
    world.start()
    await world.advance(6)
    assert sorted(len(sent.callbacks) for sent in world.dispatcher.sent) == [5, 10, 10]
    assert set(world.keys.values()) == {1}
    assert len(world.keys) == 25


async def test_a_run_that_a_person_asks_for_goes_out_at_once(world: World) -> None:
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


async def test_a_long_line_of_one_job_is_decided_about_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all of it again whenever one of it ends."""
    count, decisions, decide = 500, 0, overlap.decide

    def counted(*args: object, **kwargs: object) -> overlap.Decision:
        nonlocal decisions
        decisions += 1
        return decide(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(overlap, "decide", counted)
    job = await world.register("0 0 1 1 *")
    world.start()
    await world.advance(3)
    keys = [RunKey(job.job_id, world.now_us() + number) for number in range(count)]
    await world.store.history.request(
        world.caller, [RequestedRun(key=key, trigger=Trigger.BACKFILL) for key in keys]
    )
    await world.advance(60)
    assert len(world.keys) == count
    assert set(world.keys.values()) == {1}
    assert decisions < 3 * count


async def test_two_shards_share_the_work_and_nothing_arrives_twice(world: World) -> None:
    await world.register_many(["*/10 * * * * *"] * 100)
    first, second = world.start("a"), world.start("b")
    await world.advance(61)
    assert len(world.keys) == 600
    assert set(world.keys.values()) == {1}
    assert all(abs(at - round(at, -1)) < 0.01 for at in world.times)
    shares = [shard.vitals.tenure.partitions for shard in (first, second)]
    assert sum(shares) == 256
    assert min(shares) > 80


async def test_the_jobs_of_a_dead_shard_go_on_within_seconds(world: World) -> None:
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


async def test_a_shard_that_leaves_makes_nothing_late_and_nothing_arrives_twice(
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


async def test_a_shard_that_joins_makes_nothing_late_and_nothing_arrives_twice(
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


async def test_what_a_frozen_shard_had_armed_is_not_sent_when_it_wakes(world: World) -> None:
    job = await world.register("+30")
    world.start()
    await world.advance(29.5)
    world.line.is_cut = True
    await world.advance(10)
    assert world.times == []
    world.line.is_cut = False
    await world.advance(4)
    assert len(world.arrived) == 1
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_after_an_outage_misfires_go_by_their_policy(world: World) -> None:
    once = await world.register("* * * * * *", "once")
    skip = await world.register(
        "*/10 * * * * *", "skip", misfire=MisfirePolicy(policy=OnMisfire.SKIP, grace_us=SECOND)
    )
    world.start()
    await world.advance(20.5)
    world.line.is_cut = True
    await world.advance(120)
    count = len(world.arrived)
    world.line.is_cut = False
    await world.advance(3)
    assert len(world.arrived) > count
    runs = await world.runs(skip)
    missed = [run for run in runs if run.skip_reason is SkipReason.MISFIRE_SKIP]
    assert sum(run.missed_count or 1 for run in missed) == 12
    (summary,) = [run for run in await world.runs(once) if run.missed_count is not None]
    assert summary.skip_reason is SkipReason.SUPERSEDED


async def test_a_small_tenant_is_not_behind_a_large_one(world: World) -> None:
    other = await world.add_tenant(UUID(int=2), "second")
    await world.register_many(["+10"] * 2_000, "many")
    await world.register_many(["+10"] * 5, "few", caller=other, url="http://few.example/")
    world.handler = Slow(world, 0.05)
    world.start()
    await world.advance(30)
    few = [at for at, callback in world.arrived if callback.job_name.startswith("few")]
    assert len(world.keys) == 2_005
    assert max(few) < 10.1
