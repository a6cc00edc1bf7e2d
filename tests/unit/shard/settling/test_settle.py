"""Stage *settle*: what is written for the runs of a request, and when."""

from collections.abc import Collection, Sequence
from uuid import UUID

import pytest
from tests.marks import first_cases
from tests.unit.shard.workers import Slow
from tests.unit.shard.world import START_US, World

from wheelsched.config import BreakerConfig, FairnessConfig, LeadConfig, SettleConfig, ShardConfig
from wheelsched.core.model import FINAL_STATES, JobState, RunKey, RunState, SkipReason
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Lease, Route, Settled
from wheelsched.shard.settling.settle import Settle
from wheelsched.values.duration import SECOND

BATCH = 20  # where a thousand would make no difference but to the time it takes
MANY = 250  # more than are written at once
ONCE = RetryPolicy(max_attempts=1)
LONG_OPEN = BreakerConfig(failures=5, open_initial_ms=20_000)

ENDINGS: list[tuple[Outcome, RunState]] = [
    (Succeeded(http_status=200), RunState.SUCCEEDED),
    (Succeeded(http_status=200), RunState.SUCCEEDED),
    (Failed(error="busy", http_status=503), RunState.RETRYING),
    (Failed(error="busy", http_status=503), RunState.RETRYING),
    (Rejected(error="never"), RunState.DEAD),
    (Accepted(http_status=202), RunState.RUNNING),
    (Gone(error="no more"), RunState.DEAD),
    (Gone(error="no more"), RunState.DEAD),
    (Succeeded(http_status=200), RunState.SUCCEEDED),
]


async def test_each_run_of_a_request_gets_its_own_outcome(world: World) -> None:
    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        return [outcome for outcome, _ in ENDINGS]

    world.handler = answer
    retry = RetryPolicy(max_attempts=2, initial_us=30_000_000)
    registered = await world.register_many(["+5"] * len(ENDINGS), batch=100, retry=retry)
    shard = world.start(config=ShardConfig(lead=LeadConfig(least_us=SECOND // 4)))
    await world.advance(5.5)
    (sent,) = world.dispatcher.sent
    order = [callback.key.job_id for callback in sent.callbacks]
    jobs = sorted(registered, key=lambda job: order.index(job.job_id))
    found = [(await world.runs(job))[0] for job in jobs]
    assert [run.state for run in found] == [state for _, state in ENDINGS]
    assert {run.attempt for run in found} == {1}
    assert {run.lateness_us for run in found} == {found[0].lateness_us}
    waits_us = [run.retry_at_us for run in found if run.retry_at_us is not None]
    assert len(set(waits_us)) == 2  # each by its own luck
    states = [(await world.store.jobs.get(world.caller, job.job_id)).state for job in jobs]
    assert [state is JobState.PAUSED for state in states] == [
        isinstance(outcome, Gone) for outcome, _ in ENDINGS
    ]
    vitals = shard.vitals.runs
    assert vitals.entered[RunState.SUCCEEDED] == 3
    assert (vitals.retries, vitals.lateness.count) == (2, len(ENDINGS))


async def test_results_give_way_to_due_runs_for_a_limited_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settle, "_has_due", True)
    first, second = await world.register_many(["+5", "+9"])
    world.start()
    await world.advance(6.5)
    assert (await world.runs(first))[0].state is RunState.ARMED
    await world.advance(1)
    assert (await world.runs(first))[0].state is RunState.SUCCEEDED
    await world.advance(1.9)
    assert (await world.runs(second))[0].state is RunState.SUCCEEDED


async def test_results_do_not_give_way_to_runs_of_a_failing_target(world: World) -> None:
    """They wait for its breaker, which may take long."""

    async def answer(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        is_broken = "broken" in route.origin
        outcome = Failed(error="reset") if is_broken else Succeeded(http_status=200)
        return [outcome] * len(callbacks)

    world.handler = answer
    await world.register_many(
        ["+5"] * 20 + ["+6"] * 20, "broken", url="http://broken.example/", retry=ONCE
    )
    healthy = await world.register_many(["+6.5", "+7.2"], "healthy")
    world.start(config=ShardConfig(fairness=FairnessConfig(breaker=LONG_OPEN)))
    await world.advance(6.7)
    assert (await world.runs(healthy[0]))[0].state is RunState.SUCCEEDED
    await world.advance(0.7)
    assert (await world.runs(healthy[1]))[0].state is RunState.SUCCEEDED


async def test_a_result_that_a_next_run_waits_for_does_not_give_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job that runs every second would be skipped for a run that has long ended."""
    monkeypatch.setattr(Settle, "_has_due", True)
    often = await world.register("* * * * * *")
    world.start()
    await world.advance(6.5)
    assert world.times == [pytest.approx(at, abs=0.1) for at in range(1, 7)]
    assert SkipReason.OVERLAP not in {run.skip_reason for run in await world.runs(often)}


async def test_the_result_of_an_adopted_run_is_written_when_a_next_run_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first orphan of a dead shard is sent, and the others are skipped for it."""
    monkeypatch.setattr(Settle, "_has_due", True)
    often = await world.register("* * * * * *")
    world.start("a")
    await world.advance(10.5)
    await world.kill("a")
    world.start("b")
    await world.advance(15)
    taken_over_s = world.times[10]
    skipped = [run for run in await world.runs(often) if run.skip_reason is SkipReason.OVERLAP]
    assert 1 < len(skipped) < 8
    assert max(run.due_us for run in skipped) / SECOND - START_US / SECOND <= taken_over_s


async def test_a_skipped_run_ends_when_the_skip_was_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the write takes."""
    monkeypatch.setattr(Settle, "_has_due", True)  # reports give way for seconds
    world.handler = Slow(world, 3)
    job = await world.register("every 2s")
    world.start()
    await world.advance(15)
    skipped = [run for run in await world.runs(job) if run.state is RunState.SKIPPED]
    assert len(skipped) > 2
    assert all(run.finished_at_us == pytest.approx(run.due_us, abs=50_000) for run in skipped)


@pytest.mark.parametrize("seed", first_cases(1, range(6)))
async def test_a_success_is_written_before_the_cancel_of_a_next_run(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Many results wait for a slow database, and the next runs of their jobs cancel their runs."""
    async with World(seed) as world:
        world.config = ShardConfig(settle=SettleConfig(batch=BATCH))
        settle = world.store.runs.settle

        async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
            await world.clock.sleep(world.random.randrange(SECOND // 2) * 1_000)
            return [Succeeded(http_status=200)] * len(callbacks)

        async def settle_slowly(settled: Sequence[Settled]) -> set[RunKey]:
            await world.clock.sleep(world.random.randrange(SECOND) * 1_000)
            return await settle(settled)

        world.handler = work
        monkeypatch.setattr(world.store.runs, "settle", settle_slowly)
        cancel = OverlapPolicy(policy=OnOverlap.CANCEL)
        jobs = await world.register_many(["* * * * * *"] * MANY, overlap=cancel)
        world.start()
        await world.advance(12)
        runs = [run for job in jobs for run in await world.runs(job)]
        ended = [run for run in runs if run.state in FINAL_STATES]
        assert len(ended) > MANY
        assert {run.state for run in ended if run.key in world.keys} == {RunState.SUCCEEDED}


async def test_a_job_is_finished_once_however_often_it_is_loaded(world: World) -> None:
    """Its timer exists until it is finished, which takes a while after a hot second."""
    ended: list[UUID] = []
    finish = world.store.timers.finish

    async def finish_late(lease: Lease, job_ids: Collection[UUID]) -> None:
        ended.extend(job_ids)
        await world.clock.sleep(2_000_000_000)
        await finish(lease, job_ids)

    world.store.timers.finish = finish_late  # type: ignore[method-assign] # slow on purpose
    await world.register_many(["+5"] * 4_000, batch=500)
    world.start(config=ShardConfig(refresh_us=SECOND // 2))
    await world.advance(5.9)  # all are settled, and loaded again, and a batch is being ended
    await world.advance(60)
    assert len(set(ended)) == 4_000
    assert len(ended) == 4_000
