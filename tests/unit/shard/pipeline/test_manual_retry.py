"""Runs that a person retries before the shard knows of their end."""

from collections.abc import Sequence

import pytest
from tests.unit.shard.world import START_US, World

from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Failed, Outcome, Rejected, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Callback, Route, Settled
from wheelsched.values.duration import MINUTE, SECOND

SLOW_RETRY = RetryPolicy(max_us=10 * MINUTE)


def fail_first(world: World, retry_after_us: int) -> None:
    """Fails the first attempt of all runs, with this backoff."""

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if len(world.arrived) == 1:
            return [Failed(error="busy", http_status=503, retry_after_us=retry_after_us)]
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer


@pytest.mark.parametrize("policy", [OnOverlap.SKIP, OnOverlap.QUEUE])
@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_run_that_was_cancelled_and_retried_does_not_wait_for_itself(
    world: World, policy: OnOverlap, is_deaf: bool
) -> None:
    fail_first(world, 50 * SECOND)
    job = await world.register(
        "*/10 * * * * *", overlap=OverlapPolicy(policy=policy), retry=SLOW_RETRY
    )
    world.start()
    await world.advance(15)
    world.link.is_deaf = is_deaf
    await world.advance(1)
    key = RunKey(job.job_id, START_US + 10 * SECOND)
    await world.store.history.cancel(world.caller, key)
    await world.store.history.retry(world.caller, [key])
    await world.advance(1)
    world.link.is_deaf = False
    await world.advance(60)
    states = {run.due_us: run.state for run in await world.runs(job)}
    assert states[key.due_us] is RunState.SUCCEEDED
    assert states[START_US + 70 * SECOND] is RunState.SUCCEEDED


async def test_a_run_that_its_carrier_ended_and_a_person_retried_does_not_either(
    world: World,
) -> None:
    """The next owner reads it a moment later, and sees only that it waits."""

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        if world.now_s < 12:
            await world.clock.sleep(5 * SECOND * 1_000)
            return [Rejected(error="no", http_status=400)]
        return [Succeeded(http_status=200)] * len(callbacks)

    world.handler = answer
    jobs = await world.register_many(["*/10 * * * * *"] * 6)
    world.start("a")
    await world.advance(10.5)
    world.start("b")
    await world.advance(4.55)
    keys = [RunKey(job.job_id, START_US + 10 * SECOND) for job in jobs]
    assert not await world.store.history.retry(world.caller, keys)
    await world.advance(30)
    for job in jobs:
        states = {run.due_us: run.state for run in await world.runs(job)}
        assert states[START_US + 10 * SECOND] is RunState.SUCCEEDED
        assert states[START_US + 40 * SECOND] is RunState.SUCCEEDED


async def test_a_retry_is_sent_as_soon_as_the_ruling_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run has cancelled it, that write has no reply yet, and a person retries it."""
    fail_first(world, 100 * SECOND)
    cancel = OverlapPolicy(policy=OnOverlap.CANCEL)
    job = await world.register("30 * * * * *", overlap=cancel, retry=SLOW_RETRY)
    settle = world.store.runs.settle

    async def settle_unheard(settled: Sequence[Settled]) -> set[RunKey]:
        stale = await settle(settled)
        has_cancelled = any(one.ending.state is RunState.CANCELLED for one in settled)
        if has_cancelled and world.now_s < 90.6:
            raise StoreUnavailable
        return stale

    monkeypatch.setattr(world.store.runs, "settle", settle_unheard)
    world.start()
    await world.advance(90.2)
    (cancelled,) = [run for run in await world.runs(job) if run.state is RunState.CANCELLED]
    await world.store.history.retry(world.caller, [cancelled.key])
    await world.advance(5)
    assert world.keys[cancelled.key] == 2
