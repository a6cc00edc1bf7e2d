"""A run of `overlap=skip` that is due while the outcome of the one before waits to be written."""

from collections.abc import Sequence

import pytest
from tests.unit.shard.workers import Slow, accepting
from tests.unit.shard.world import START_US, World

from wheelsched.core.model import Job, RunKey, SkipReason
from wheelsched.core.outcome import Failed, Outcome
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.errors import StoreFault, StoreUnavailable
from wheelsched.ports import Callback, Route, Settled
from wheelsched.testing.dispatcher import Handler
from wheelsched.values.duration import MINUTE, SECOND

FIRST_S = 10  # the run whose outcome waits
AWAY_S, BACK_S, WRITTEN_S = 10.1, 25.2, 27.5  # its answer comes while the store is away
ANSWERS_S = 0.3


def write_from(world: World, written_s: float, *refused: int) -> None:
    """From the first run on, no outcome is written until an instant. Some are rejected for good."""
    settle = world.store.runs.settle

    async def settle_late(settled: Sequence[Settled]) -> set[RunKey]:
        if FIRST_S <= world.now_s < written_s:
            raise StoreUnavailable
        if any(second(one.key) in refused for one in settled):
            raise StoreFault
        return await settle(settled)

    world.link.runs.settle = settle_late


async def lose_store(world: World, *, is_restarted: bool) -> None:
    """The store is away from 10.1 to 25.2 s."""
    await world.advance(AWAY_S)
    world.link.is_cut = True
    if is_restarted:
        world.store.server.restart()
    else:
        world.store.server.end_all()
    await world.advance(BACK_S - AWAY_S)
    world.link.is_cut = False


def second(key: RunKey) -> int:
    return (key.due_us - START_US) // SECOND


def sent(world: World, job: Job) -> dict[int, float]:
    """When each run of a job arrived, by its due time."""
    return {
        second(callback.key): at_s
        for at_s, callback in world.arrived
        if callback.key.job_id == job.job_id
    }


async def skipped(world: World, job: Job, reason: SkipReason) -> list[int]:
    return [second(run.key) for run in await world.runs(job) if run.skip_reason is reason]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_job_fires_once_for_what_it_missed_while_the_store_was_away(
    world: World, is_restarted: bool
) -> None:
    world.handler = Slow(world, ANSWERS_S)
    write_from(world, WRITTEN_S)
    jobs = await world.register_many(["* * * * * *"] * 5)
    world.start()
    await lose_store(world, is_restarted=is_restarted)
    await world.advance(10)
    for job in jobs:
        missed = [at_s for due_s, at_s in sent(world, job).items() if FIRST_S < due_s <= BACK_S]
        assert missed == [pytest.approx(WRITTEN_S, abs=1.2)]  # a pause before the next attempt
        assert missed[0] > WRITTEN_S
        overlapping = [due_s for due_s in range(11, 26) if due_s not in sent(world, job)]
        assert set(overlapping) <= set(await skipped(world, job, SkipReason.OVERLAP))
    assert set(world.keys.values()) == {1}


@pytest.mark.parametrize("seed", range(12))
async def test_it_does_so_whichever_statement_is_repeated_first(seed: int) -> None:
    """The pauses before the claims and before the writes are random."""
    async with World(seed) as world:
        world.handler = Slow(world, ANSWERS_S)
        job = await world.register("* * * * * *")
        world.start()
        await lose_store(world, is_restarted=bool(seed % 2))
        await world.advance(5)
        assert len([due_s for due_s in sent(world, job) if FIRST_S < due_s <= BACK_S]) == 1


async def fail(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
    return [Failed(error="busy", retry_after_us=20 * SECOND)] * len(callbacks)


@pytest.mark.parametrize("answer", [fail, accepting])
async def test_it_is_skipped_if_the_run_before_stays_live(world: World, answer: Handler) -> None:
    world.handler = answer
    write_from(world, 14.5)
    job = await world.register("10-13 * * * * *", retry=RetryPolicy(max_us=MINUTE))
    world.start()
    await world.advance(14)
    assert await skipped(world, job, SkipReason.OVERLAP) == []
    await world.advance(3)
    assert list(sent(world, job)) == [FIRST_S]
    assert await skipped(world, job, SkipReason.OVERLAP) == [11, 12, 13]


async def test_it_waits_for_no_outcome_that_is_never_written(world: World) -> None:
    write_from(world, 0, FIRST_S)
    job = await world.register("10-13 * * * * *")
    world.start()
    await world.advance(15)
    assert list(sent(world, job)) == [FIRST_S]
    assert await skipped(world, job, SkipReason.OVERLAP) == [11, 12, 13]


async def test_the_next_owner_never_has_two_live_runs(world: World) -> None:
    """The shard dies with the outcome: the run is sent again, and no other beside it."""
    world.handler = Slow(world, 3)
    write_from(world, 16)
    job = await world.register("10,14,16 * * * * *")
    world.start()
    await world.advance(15)
    assert list(sent(world, job)) == [FIRST_S]
    await world.crash()
    world.start("b")
    await world.advance(15)
    again_s = sent(world, job)[FIRST_S]
    assert again_s > 15
    others = [at_s for due_s, at_s in sent(world, job).items() if due_s > FIRST_S]
    assert all(at_s >= again_s + 3 for at_s in others)
