"""The pipeline on a store that is slow only to write outcomes."""

from collections.abc import AsyncIterator, Sequence

import pytest
from tests.unit.shard.world import World

from wheelsched.config import ShardConfig
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Accepted, Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.ports import Callback, Ending, Route, Settled
from wheelsched.values.duration import SECOND

SLOW_S = 15
OFTEN = ShardConfig(refresh_us=10 * SECOND)  # compares what it knows with the database this often


class Slow(World):
    """A world with a store that writes outcomes late, and slow workers."""

    def __init__(self) -> None:
        super().__init__()
        self._settle = self.store.runs.settle
        self.store.runs.settle = self._settle_late  # type: ignore[method-assign] # slow on purpose
        self.handler = self._work
        self.slow_from_s = 0.0

    async def _settle_late(self, settled: Sequence[Settled]) -> set[RunKey]:
        if self.now_s >= self.slow_from_s:
            await self.clock.sleep(SLOW_S * 1_000_000_000)
        return await self._settle(settled)

    async def _work(self, route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await self.clock.sleep(12_000_000_000)
        return [Succeeded(http_status=200) for _ in callbacks]


@pytest.fixture
async def world() -> AsyncIterator[Slow]:
    async with Slow() as world:
        yield world


async def test_a_run_cancelled_for_a_later_one_is_not_sent_again(world: Slow) -> None:
    job = await world.register(
        "every 9s", overlap=OverlapPolicy(policy=OnOverlap.CANCEL, max_concurrent=1)
    )
    world.start(config=OFTEN)
    await world.advance(100)
    assert set(world.keys.values()) == {1}
    assert (await world.states(job))[:4] == [RunState.CANCELLED] * 4


async def test_a_skipped_run_is_not_adopted(world: Slow) -> None:
    job = await world.register("every 5s", overlap=OverlapPolicy(policy=OnOverlap.SKIP))
    shard = world.start(config=OFTEN)
    await world.advance(100)
    assert shard.vitals.runs.stale_outcomes == 0
    assert (await world.states(job)).count(RunState.SKIPPED) > 8


async def test_a_failed_and_cancelled_run_is_not_retried(world: Slow) -> None:
    async def fail(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        return [Failed(error="no")] * len(callbacks)

    world.handler = fail
    job = await world.register(
        "every 9s", overlap=OverlapPolicy(policy=OnOverlap.CANCEL, max_concurrent=1)
    )
    world.start()
    await world.advance(100)
    assert set(world.keys.values()) == {1}
    assert (await world.states(job))[:2] == [RunState.CANCELLED] * 2


async def test_the_outcome_of_an_earlier_attempt_does_not_end_a_later_one(world: Slow) -> None:
    """A worker reports a failure before the shard has written its acceptance."""

    async def accept(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        return [Accepted(http_status=202)] * len(callbacks)

    async def fail() -> None:
        run, now_us = (await world.runs(job))[0], world.now_us()
        assert run.token is not None
        failed = Ending(
            state=RunState.RETRYING,
            started_at_us=now_us,
            finished_at_us=now_us,
            retry_at_us=now_us + SECOND,
        )
        assert await world.store.history.answer(world.caller, Settled(run.key, run.token, failed))

    world.handler = accept
    world.slow_from_s = 13
    job = await world.register(
        "every 10s", overlap=OverlapPolicy(policy=OnOverlap.SKIP), timeout_us=6 * SECOND
    )
    world.start()
    await world.advance(12.5)
    await fail()  # the second attempt is at 13.5, and is accepted
    await world.advance(1.5)
    await fail()  # the third is when the watch over the first looks up
    await world.advance(20)
    first = world.arrived[0][1].key
    assert [(callback.key, callback.attempt) for _, callback in world.arrived] == [
        (first, 1),
        (first, 2),
        (first, 3),
    ]


async def test_a_hand_over_waits_until_every_ruling_is_written(world: Slow) -> None:
    await world.register_many(
        ["every 9s"] * 20, overlap=OverlapPolicy(policy=OnOverlap.CANCEL, max_concurrent=1)
    )
    world.start("a")
    await world.advance(20)
    world.start("b")
    await world.advance(80)
    assert set(world.keys.values()) == {1}
