"""The whole pipeline in virtual time: runs that are due while an earlier one is unfinished."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import START_US, World

from wheelsched.config import FairnessConfig, ShardConfig
from wheelsched.core.model import Run, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies import overlap
from wheelsched.core.policies.policy import MisfirePolicy, OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, ClaimedRetry, Lease, RequestedRun, Route
from wheelsched.values.duration import MINUTE, SECOND

QUEUE = OverlapPolicy(policy=OnOverlap.QUEUE)


async def test_overlap_skip_never_has_two_live_runs(world: World) -> None:
    world.handler = Slow(world, 12)
    job = await world.register("*/5 * * * * *")
    world.start()
    await world.advance(41)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 20, 35)]
    skipped = [run.skip_reason for run in await world.runs(job) if run.skip_reason]
    assert skipped == [SkipReason.OVERLAP] * 5


async def test_overlap_queue_sends_one_run_after_the_other(world: World) -> None:
    world.handler = Slow(world, 7)
    await world.register("*/5 * * * * *", overlap=OverlapPolicy(policy=OnOverlap.QUEUE))
    world.start()
    await world.advance(27)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 12, 19, 26)]
    assert [callback.key.due_us for _, callback in world.arrived] == sorted(
        callback.key.due_us for _, callback in world.arrived
    )


async def test_a_slow_overlap_queue_keeps_its_order(world: World) -> None:
    """Even if the runs ahead have waited past their grace."""
    world.handler = Slow(world, 2)
    await world.register("* * * * * *", overlap=QUEUE, misfire=MisfirePolicy(grace_us=5 * SECOND))
    world.start()
    await world.advance(60)
    dues_us = [callback.key.due_us for _, callback in world.arrived]
    assert dues_us == [START_US + second * SECOND for second in range(1, len(dues_us) + 1)]
    assert len(dues_us) > 25


async def test_an_overlap_queue_of_late_runs_is_bounded_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "MAX_QUEUED", 10)
    world.handler = Slow(world, 30)
    policy = MisfirePolicy(grace_us=5 * SECOND)
    job = await world.register("* * * * * *", overlap=QUEUE, misfire=policy)
    world.start()
    await world.advance(120)
    waiting = [run for run in await world.runs(job) if run.state is RunState.ARMED]
    assert sum(run.due_us <= world.now_us() for run in waiting) <= 15
    assert SkipReason.QUEUE_FULL in {run.skip_reason for run in await world.runs(job)}


async def test_an_overlap_queue_goes_on_when_the_run_ahead_is_rebuilt(world: World) -> None:
    """A backfill is queued, a run on time waits for the backfill, and their job is edited."""

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].key.job_id == blocker.job_id:
            await world.clock.sleep(15 * SECOND * 1_000)
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer
    blocker = await world.register("+5", "blocker")
    job = await world.register("*/10 * * * * *", overlap=QUEUE)
    world.start(config=ShardConfig(fairness=FairnessConfig(in_flight_per_origin=1)))
    await world.advance(6)
    backfill = RequestedRun(key=RunKey(job.job_id, world.now_us() + 1), trigger=Trigger.BACKFILL)
    await world.store.history.request(world.caller, [backfill])
    await world.advance(1)
    world.link.is_deaf = True
    await world.advance(0.5)
    edited = replace(job, version=job.version + 1)
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(4.5)  # the run of 10 s waits
    world.link.is_deaf = False
    await world.advance(30)
    states = {run.due_us: run.state for run in await world.runs(job)}
    assert states[backfill.key.due_us] is RunState.SUCCEEDED
    assert states[START_US + 10 * SECOND] is RunState.SUCCEEDED
    assert states[START_US + 40 * SECOND] is RunState.SUCCEEDED


async def test_overlap_cancel_ends_the_older_run(world: World) -> None:
    world.handler = Slow(world, 7)
    job = await world.register("*/5 * * * * *", overlap=OverlapPolicy(policy=OnOverlap.CANCEL))
    world.start()
    await world.advance(13)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 10)]
    assert (await world.states(job))[0] is RunState.CANCELLED


@pytest.mark.parametrize("wait_s", [10.5, 14.0])  # armed already when its job is due again, or not
async def test_overlap_cancel_ends_a_run_that_waits_for_its_next_attempt(
    world: World, wait_s: float
) -> None:
    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].key.due_us == START_US + 10 * SECOND:
            return [Failed(error="busy", retry_after_us=int(wait_s * SECOND))]
        await world.clock.sleep(3 * SECOND * 1_000)
        return [Succeeded(http_status=200)]

    world.handler = answer
    cancel = OverlapPolicy(policy=OnOverlap.CANCEL)
    job = await world.register("every 10s", overlap=cancel, retry=RetryPolicy(max_us=MINUTE))
    world.start()
    await world.advance(28)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (10, 20)]
    assert (await world.states(job))[:2] == [RunState.CANCELLED, RunState.SUCCEEDED]


async def test_overlap_cancel_ends_a_run_whose_claim_has_no_reply_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim has committed, and its reply comes after the job was due again."""
    arm_retries = world.store.timers.arm_retries

    async def arm_and_tell_late(lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        runs = await arm_retries(lease, retries)
        await world.clock.sleep(int(24 - world.now_s) * SECOND * 1_000)
        return runs

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if callbacks[0].key.due_us == START_US + 10 * SECOND:
            return [Failed(error="busy", retry_after_us=11 * SECOND)]
        return [Succeeded(http_status=200)]

    monkeypatch.setattr(world.store.timers, "arm_retries", arm_and_tell_late)
    world.handler = answer
    cancel = OverlapPolicy(policy=OnOverlap.CANCEL)
    job = await world.register("every 10s", overlap=cancel, retry=RetryPolicy(max_us=MINUTE))
    world.start()
    await world.advance(28)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (10, 20)]
    assert (await world.states(job))[:2] == [RunState.CANCELLED, RunState.SUCCEEDED]


async def test_overlap_allow_sends_runs_in_parallel(world: World) -> None:
    world.handler = Slow(world, 7)
    await world.register("*/5 * * * * *", overlap=OverlapPolicy(policy=OnOverlap.ALLOW))
    world.start()
    await world.advance(16)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (5, 10, 15)]


async def test_a_long_overlap_queue_is_decided_one_run_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run does not decide about the whole queue again."""
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
