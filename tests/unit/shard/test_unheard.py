"""Claims that have committed and are not answered, and what becomes of their runs meanwhile."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import START_US, World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core.duration import SECOND
from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.core.outcome import Accepted, Outcome, Succeeded
from wheelsched.core.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import (
    Adoption,
    Callback,
    Checked,
    ClaimedRetry,
    Ending,
    Lease,
    Route,
    Settled,
)
from wheelsched.shard.watch import Watch, Watched

CANCEL = OverlapPolicy(policy=OnOverlap.CANCEL)
MS = 1_000_000


def sent(world: World, due_s: int) -> list[float]:
    """When the run that is due then arrived, each time."""
    return [at_s for at_s, one in world.arrived if one.key.due_us == START_US + due_s * SECOND]


async def test_what_a_later_run_has_ended_is_not_sent_by_an_adoption(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its carrier dies, and the answer to its adoption comes after its job was due again."""
    await world.register("*/10 * * * * *", overlap=CANCEL)
    world.handler = Slow(world, 10_000)
    adopt = world.store.runs.adopt

    async def adopt_and_tell_late(lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        lost = await adopt(lease, adoptions)
        await world.clock.sleep(int(max(24 - world.now_s, 0) * 1_000) * MS)
        return lost

    config = ShardConfig(lead=LeadConfig(least_us=SECOND))
    world.start("a", config)
    await world.advance(10.2)
    world.start("b", config)
    await world.advance(0.5)
    world.shards["a"][0].stop()
    await world.advance(1)
    monkeypatch.setattr(world.store.runs, "adopt", adopt_and_tell_late)
    await world.kill("a")
    world.handler = Slow(world, 5)
    await world.advance(28 - world.now_s)
    assert sent(world, 10) == [pytest.approx(10, abs=0.1)]
    assert sent(world, 20) == [pytest.approx(20, abs=0.1)]


async def test_a_run_is_live_while_its_next_attempt_is_claimed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker, who had accepted it, says that it failed just as it was given up for silent."""
    arm_retries, settle = world.store.timers.arm_retries, world.store.runs.settle
    judge_silence, given_up = Watch._judge_silence, asyncio.Event()

    async def arm_and_tell_late(lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        runs = await arm_retries(lease, retries)
        await world.clock.sleep(300 * MS)
        return runs

    async def settle_later(settled: Sequence[Settled]) -> set[RunKey]:
        await world.clock.sleep(150 * MS)
        return await settle(settled)

    def judge_and_tell(self: Watch, watched: Watched, check: Checked) -> None:
        judge_silence(self, watched, check)
        if watched.run.key not in self._watched:
            given_up.set()

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        (one,) = callbacks
        if one.key.due_us == START_US + 10 * SECOND and one.attempt == 1:
            return [Accepted(http_status=202)]
        await world.clock.sleep(6_000 * MS)
        return [Succeeded(http_status=200)]

    world.handler = work
    job = await world.register("*/10 * * * * *", timeout_us=7 * SECOND)
    world.start()
    await world.advance(12)
    monkeypatch.setattr(world.store.runs, "settle", settle_later)
    monkeypatch.setattr(world.store.timers, "arm_retries", arm_and_tell_late)
    monkeypatch.setattr(Watch, "_judge_silence", judge_and_tell)
    while not given_up.is_set():
        await world.advance(0.001)
    (run, *_), now_us = await world.runs(job), world.now_us()
    assert run.token is not None
    failed = Ending(
        state=RunState.RETRYING, finished_at_us=now_us, retry_at_us=START_US + 21 * SECOND
    )
    assert await world.store.history.answer(world.caller, Settled(run.key, run.token, failed))
    await world.advance(30 - world.now_s)
    assert sent(world, 10) == [pytest.approx(at, abs=0.1) for at in (10, 21)]
    assert (await world.states(job))[1] is RunState.SKIPPED


async def test_a_worker_that_fails_before_its_acceptance_is_written_is_asked_again(
    world: World,
) -> None:
    """At the time of its retry, not when everything is loaded again."""
    failing: list[asyncio.Task[object]] = []

    async def fail(one: Callback) -> None:
        await world.clock.sleep(3 * MS)
        now_us = world.now_us()
        failed = Ending(
            state=RunState.RETRYING, finished_at_us=now_us, retry_at_us=now_us + 3 * SECOND
        )
        await world.store.history.answer(world.caller, Settled(one.key, one.token, failed))

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        (one,) = callbacks
        if one.attempt > 1:
            return [Succeeded(http_status=200)]
        failing.append(asyncio.get_running_loop().create_task(fail(one)))
        return [Accepted(http_status=202)]

    world.handler = work
    job = await world.register("+2")
    world.start()
    await world.advance(8)
    assert world.times == [pytest.approx(at, abs=0.1) for at in (2, 5)]
    assert await world.states(job) == [RunState.SUCCEEDED]
    await asyncio.gather(*failing)
