"""Shard processes on a real database, with a real worker: every due time arrives."""

import signal
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.fleet import Fleet, fleet_on, iso
from tests.workers import Received

from wheelsched.core.model import Run, RunState
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.values.duration import MILLISECOND, SECOND

pytestmark = pytest.mark.proof  # shards in processes of their own

BESIDE = OverlapPolicy(policy=OnOverlap.ALLOW)


@pytest.fixture
async def fleet(database: str) -> AsyncIterator[Fleet]:
    async with fleet_on(database) as fleet:
        yield fleet


async def spread(fleet: Fleet, count: int, over_us: int, ahead_us: int) -> list[str]:
    """One-offs at distances from each other, the first so far ahead."""
    start_us = await fleet.now_us() + ahead_us
    step_us = over_us // count
    return [iso(start_us + number * step_us) for number in range(count)]


async def test_every_due_time_arrives_once_from_three_shards(fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        await fleet.start(name)
    one_offs = await fleet.register(await spread(fleet, 300, 5 * SECOND, 2 * SECOND))
    recurring = await fleet.register(["* * * * * *"] * 20, overlap=BESIDE)
    await fleet.until_settled(recurring, 20 * 8)
    await fleet.until_settled(one_offs, 300)
    assert set(fleet.arrivals.values()) == {1}
    runs = await fleet.runs([*one_offs, *recurring])
    assert {run.run_id for run in runs if run.started_at_us} <= fleet.arrivals.keys()
    assert_unbroken([run for run in runs if run.job_id == recurring[0].job_id])


@pytest.mark.smoke
async def test_one_that_is_registered_at_the_last_moment_arrives(fleet: Fleet) -> None:
    await fleet.start("a")
    due_us = await fleet.now_us() + 50 * MILLISECOND
    jobs = await fleet.register([iso(due_us)])
    await fleet.until_settled(jobs, 1)
    (run,) = await fleet.runs(jobs)
    assert run.lateness_us is not None
    assert fleet.arrivals[run.run_id] == 1


async def test_runs_of_a_killed_shard_arrive_late_with_the_same_keys(fleet: Fleet) -> None:
    for name in ("a", "b"):
        await fleet.start(name)
    jobs = await fleet.register(["* * * * * *"] * 30, overlap=BESIDE)
    await fleet.until_settled(jobs, 30 * 3)
    before = await fleet.runs(jobs)
    await fleet.kill("a")
    killed_us = await fleet.now_us()
    await fleet.until_owned(1)
    await fleet.until_settled(jobs, len(await fleet.runs(jobs)))
    runs = await fleet.runs(jobs)
    for job in jobs:
        assert_unbroken([run for run in runs if run.job_id == job.job_id])
    repeated = {run_id for run_id, count in fleet.arrivals.items() if count > 1}
    for run_id in repeated:
        assert_same_run(
            [got for got in fleet.received if got.headers["wheelsched-run-id"] == run_id]
        )
    assert not repeated & {run.run_id for run in before if run.state is RunState.SUCCEEDED}
    due_us = {run.run_id: run.due_us for run in runs}
    assert all(due_us[run_id] < killed_us + SECOND for run_id in repeated)


async def test_a_shard_that_is_asked_to_stop_goes_without_a_trace(fleet: Fleet) -> None:
    for name in ("a", "b"):
        await fleet.start(name)
    jobs = await fleet.register(["* * * * * *"] * 30, overlap=BESIDE)
    await fleet.until_settled(jobs, 30 * 3)
    fleet.signal("a", signal.SIGTERM)
    assert await fleet.ended("a") == 0
    survey = await fleet.store.leases.survey()
    assert len(survey.shards) == 1
    done = len(fleet.arrivals)
    await fleet.until_arrived(done + 30 * 3)
    assert set(fleet.arrivals.values()) == {1}
    runs = await fleet.runs(jobs)
    for job in jobs:
        assert_unbroken([run for run in runs if run.job_id == job.job_id])


async def test_a_shard_that_joins_takes_its_share_without_a_trace(fleet: Fleet) -> None:
    await fleet.start("a")
    jobs = await fleet.register(["* * * * * *"] * 30, overlap=BESIDE)
    await fleet.until_settled(jobs, 30 * 3)
    await fleet.start("b")
    done = len(fleet.arrivals)
    await fleet.until_arrived(done + 30 * 3)
    assert set(fleet.arrivals.values()) == {1}


def assert_unbroken(runs: Sequence[Run]) -> None:
    """Every second from the first run of a job to its last has its run."""
    seconds = sorted(run.due_us // SECOND for run in runs)
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))


def assert_same_run(received: Sequence[Received]) -> None:
    """Attempts of one run: the same key, and another token for each.

    They come over several connections, so they may be read in another order than they were sent.
    """
    assert len({got.headers["idempotency-key"] for got in received}) == 1
    tokens = [int(got.headers["wheelsched-fencing-token"]) for got in received]
    assert len(tokens) == len(set(tokens))
