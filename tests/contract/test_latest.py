"""Runs of all jobs of a tenant within a window of time, on memory and on Postgres."""

import pytest
from tests.contract.conftest import MINUTE_US, World

from wheelsched.core.model import Job, Run, RunKey, RunState, Trigger, requested_due_us
from wheelsched.ports import RequestedRun, RunFilter
from wheelsched.store.for_api import latest
from wheelsched.values.duration import SECOND

STATES = (RunState.SUCCEEDED, RunState.DEAD, RunState.RETRYING, RunState.RUNNING, RunState.ARMED)


async def fill(world: World, jobs: int, offsets_us: list[int]) -> list[RunKey]:
    """A run of each job at each offset from now."""
    lease = await world.own_all()
    made = [await world.register(world.now_us + min(offsets_us), f"job {n}") for n in range(jobs)]
    keys = []
    for due_us, next_us in zip(offsets_us, [*offsets_us[1:], 10 * MINUTE_US], strict=True):
        claims = [
            world.claim(job, world.now_us + due_us, next_due_us=world.now_us + next_us)
            for job in made
        ]
        assert await world.timers.arm(lease, claims) == set()
        keys += [claim.key for claim in claims]
    return keys


async def read_all(world: World, wanted: RunFilter, limit: int) -> list[Run]:
    runs: list[Run] = []
    found = await world.history.list_latest(world.caller, wanted, limit)
    while True:
        assert len(found.runs) <= limit
        runs += found.runs
        if found.rest is None:
            return runs
        found = await world.history.list_latest(world.caller, wanted, limit, found.rest)


def window(world: World, since_us: int, until_us: int, **changes: object) -> RunFilter:
    since_us, until_us = world.now_us + since_us, world.now_us + until_us
    return RunFilter(since_us=since_us, until_us=until_us, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_all_runs_of_a_window_come_once_and_the_latest_first(
    world: World, limit: int
) -> None:
    """Seven jobs are due at the same instants: pages end in the middle of them."""
    offsets_us = [0, 1_000, 500_000, 2 * SECOND, 70 * SECOND]
    keys = await fill(world, 7, offsets_us)
    inside = [key for key in keys if 0 < key.due_us - world.now_us < 70 * SECOND]
    runs = await read_all(world, window(world, 1, 70 * SECOND), limit)
    assert sorted(run.key for run in runs) == sorted(inside)
    assert [run.due_us for run in runs] == sorted((run.due_us for run in runs), reverse=True)


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize("state", STATES)
async def test_runs_are_listed_by_state(world: World, state: RunState, limit: int) -> None:
    lease = await world.own_all()
    for ending in STATES:
        for number in range(3):
            job = await world.register(world.now_us + number, f"{ending} {number}")
            key, token = await world.arm(lease, job, world.now_us + number)
            if ending is not RunState.ARMED:
                retry_at_us = world.now_us + MINUTE_US if ending is RunState.RETRYING else None
                settled = world.settled(key, token, ending, retry_at_us=retry_at_us)
                assert await world.runs.settle([settled]) == set()
    runs = await read_all(world, window(world, 0, 2, state=state), limit)
    assert [(run.state, run.due_us - world.now_us) for run in runs] == [(state, 1), (state, 0)]


async def test_runs_are_listed_by_job(world: World) -> None:
    keys = await fill(world, 2, [0, SECOND, 2 * SECOND])
    wanted = window(world, 0, 2 * SECOND, job_id=keys[0].job_id)
    runs = await read_all(world, wanted, 1)
    assert [run.key for run in runs] == [keys[2], keys[0]]
    armed = window(world, 0, MINUTE_US, job_id=keys[0].job_id, state=RunState.ARMED)
    assert len(await read_all(world, armed, 9)) == 3


async def test_a_run_that_waits_for_its_shard_is_retrying(world: World) -> None:
    job = await world.register(None)
    key = RunKey(job.job_id, requested_due_us(world.now_us))
    await world.history.request(world.caller, [RequestedRun(key=key, trigger=Trigger.MANUAL)])
    wanted = window(world, 0, MINUTE_US, state=RunState.RETRYING)
    assert [run.key for run in await read_all(world, wanted, 9)] == [key]


@pytest.mark.parametrize("state", [None, *STATES])
async def test_a_tenant_cannot_list_the_runs_of_another(
    world: World, state: RunState | None
) -> None:
    await fill(world, 3, [0])
    wanted = window(world, 0, SECOND, state=state)
    assert await world.history.list_latest(world.other, wanted, 9) == ([], None)


async def test_a_list_that_took_its_time_says_where_it_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part reads one slice of time, most of which are empty."""
    keys = await fill(world, 3, [0, 30 * SECOND])
    monkeypatch.setattr(latest, "BUDGET_S", 0)
    wanted = window(world, -100 * SECOND, 100 * SECOND)
    runs = await read_all(world, wanted, 2)
    assert sorted(run.key for run in runs) == sorted(keys)


async def test_names_of_jobs_are_read_for_their_tenant_alone(world: World) -> None:
    jobs: list[Job] = [await world.register(None, name) for name in ("a", "b")]
    gone = world.job()
    wanted = [job.job_id for job in (*jobs, gone)]
    names = await world.jobs.read_names(world.caller, wanted)
    assert names == {jobs[0].job_id: "a", jobs[1].job_id: "b"}
    assert await world.jobs.read_names(world.other, wanted) == {}
