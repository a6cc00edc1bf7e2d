"""The pipeline with invalid jobs, requests that cannot be built, and a store that rejects some."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import pytest
from msgspec.structs import replace
from tests.unit.shard.world import World

from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import (
    RetryPolicy,
)
from wheelsched.errors import StoreFault
from wheelsched.ports import (
    Callback,
    Claim,
    ClaimedRetry,
    Lease,
    Prepared,
    Route,
    Settled,
)
from wheelsched.shard.firing.send import OUR_FAULT, Sender


async def test_an_invalid_job_does_not_block_others(world: World) -> None:
    await world.register("*/10 * * * * *", "good")
    bad = await world.register("*/10 * * * * *", "bad")
    jobs = world.store._tables.jobs
    jobs[bad.job_id] = replace(bad, spec=replace(bad.spec, timezone="Mars/Phobos"))
    world.start()
    await world.advance(25)
    assert [callback.job_name for _, callback in world.arrived] == ["good-0"] * 2
    jobs[bad.job_id] = bad
    await world.advance(60)
    assert "bad-0" in {callback.job_name for _, callback in world.arrived}


async def test_a_request_that_raises_is_a_failed_attempt(world: World) -> None:
    bad = await world.register("+10", "bad", retry=RetryPolicy(max_attempts=1))
    good = await world.register("+20", "good")
    carry = world.dispatcher.carry

    async def raising(
        route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        if world.now_s < 15:
            assert begin()
            raise RecursionError
        return await carry(route, batch, begin)

    world.dispatcher.carry = raising  # type: ignore[method-assign] # broken on purpose
    world.start()
    await world.advance(25)
    assert await world.states(bad) == [RunState.DEAD]
    assert await world.states(good) == [RunState.SUCCEEDED]


async def test_a_request_that_is_refused_at_once_is_a_failed_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = await world.register("+10", retry=RetryPolicy(max_attempts=1))

    def raising(*_: object) -> NoReturn:
        raise RecursionError

    monkeypatch.setattr(world.dispatcher, "send", raising)
    world.start()
    await world.advance(12)
    (run,) = await world.runs(bad)
    assert (run.state, run.error) == (RunState.DEAD, OUR_FAULT)


@pytest.mark.parametrize("is_sent", [True, False])
async def test_an_error_after_a_request_ends_the_shard_and_loses_no_run(
    world: World, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    def raising(*_: object) -> NoReturn:
        raise RecursionError

    job = await world.register("+10")
    world.start()
    with monkeypatch.context() as broken:
        broken.setattr(Sender, "_report", raising)
        if not is_sent:
            broken.setattr(world.dispatcher, "send", raising)
        with pytest.raises(ExceptionGroup):
            await world.advance(12)
    del world.shards["a"]
    world.start("b")
    await world.advance(30)
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_an_edit_that_cannot_be_built_does_not_block_others(world: World) -> None:
    bad, _ = await world.register_many(["+5", "+6"])
    world.start()
    await world.advance(4.2)
    edited = replace(bad, version=bad.version + 1, idempotency_key="{{no_such_field}}")
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(5)
    assert world.times == [pytest.approx(6, abs=0.001)]
    (run,) = await world.runs(bad)
    assert run.state is RunState.DEAD
    assert "could not be built" in str(run.error)


async def test_a_rejected_claim_is_not_repeated_at_once(world: World) -> None:
    bad = await world.register("+5", "bad")
    good = await world.register("+6", "good")
    arm, refused = world.store.timers.arm, []

    async def refuse(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        if any(claim.job_id == bad.job_id for claim in claims):
            refused.append(world.now_s)
            raise StoreFault
        return await arm(lease, claims)

    world.link.timers.arm = refuse
    world.start()
    await world.advance(50)
    assert len(refused) < 10
    assert await world.states(good) == [RunState.SUCCEEDED]


async def test_a_rejected_retry_does_not_block_others(world: World) -> None:
    async def fail_bad(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        is_bad = callbacks[0].job_name.startswith("bad")
        return [Failed(error="no")] if is_bad else [Succeeded(http_status=200)]

    world.handler = fail_bad
    bad = await world.register("+5", "bad")
    await world.register("*/10 * * * * *", "good")
    arm_retries = world.store.timers.arm_retries

    async def refuse(lease: Lease, retries: Sequence[ClaimedRetry]) -> object:
        if any(retry.key.job_id == bad.job_id for retry in retries):
            raise StoreFault
        return await arm_retries(lease, retries)

    world.link.timers.arm_retries = refuse
    world.start()
    await world.advance(61)
    assert [callback.job_name for _, callback in world.arrived].count("good-0") == 6


async def test_a_run_with_a_rejected_result_is_not_sent_again(world: World) -> None:
    bad = await world.register("+5", "bad", retry=RetryPolicy(max_attempts=1))
    settle = world.store.runs.settle

    async def refuse(settled: Sequence[Settled]) -> set[RunKey]:
        if any(outcome.key.job_id == bad.job_id for outcome in settled):
            raise StoreFault
        return await settle(settled)

    world.link.runs.settle = refuse
    world.start()
    await world.advance(300)
    assert world.times == [pytest.approx(5, abs=0.01)]
