"""Claims that have committed without a reply, and what happens to their runs meanwhile."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import START_US, World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.core.outcome import Accepted, Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
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
from wheelsched.shard.recovery.external_runs import ExternalRuns, Watched
from wheelsched.values.duration import SECOND

CANCEL = OverlapPolicy(policy=OnOverlap.CANCEL)
MS = 1_000_000


def sent(world: World, due_s: int) -> list[float]:
    """When each attempt of the run that is due then arrived."""
    return [at_s for at_s, one in world.arrived if one.key.due_us == START_US + due_s * SECOND]


async def test_an_adoption_does_not_send_a_run_that_a_later_run_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its carrier dies, and the reply to its adoption comes after the job was due again."""
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
    """The worker that accepted it reports a failure just when its heartbeat counts as missing."""
    arm_retries, settle = world.store.timers.arm_retries, world.store.runs.settle
    check_heartbeat, given_up = ExternalRuns._check_heartbeat, asyncio.Event()

    async def arm_and_tell_late(lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        runs = await arm_retries(lease, retries)
        await world.clock.sleep(300 * MS)
        return runs

    async def settle_later(settled: Sequence[Settled]) -> set[RunKey]:
        await world.clock.sleep(150 * MS)
        return await settle(settled)

    def judge_and_tell(self: ExternalRuns, watched: Watched, check: Checked) -> None:
        check_heartbeat(self, watched, check)
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
    monkeypatch.setattr(ExternalRuns, "_check_heartbeat", judge_and_tell)
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


async def test_a_run_that_fails_before_its_acceptance_is_written_is_retried(
    world: World,
) -> None:
    """At the time of its retry, not at the next refresh."""
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
