"""Settling and sweeping, on memory and on Postgres."""

from collections import Counter
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.contract.conftest import ALL, MINUTE_US, TTL_US, World

from wheelsched.core.model import (
    Lane,
    RunKey,
    RunState,
    SkipReason,
    Trigger,
    requested_due_us,
)
from wheelsched.core.outcome import Failed
from wheelsched.core.partition import partition_of
from wheelsched.errors import LeaseLost
from wheelsched.ports import (
    Adoption,
    ClaimedRetry,
    ClaimedRun,
    Lease,
    RequestedRun,
    Settled,
)


async def test_an_outcome_is_written_once(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    done = world.settled(key, token, RunState.SUCCEEDED, http_status=204)
    assert await world.runs.settle([done]) == set()
    first, _ = await world.history.get_run(world.caller, key)
    assert (first.state, first.attempt, first.http_status) == (RunState.SUCCEEDED, 1, 204)
    assert (first.started_at_us, first.lateness_us) == (world.now_us + 2_000, 2_000)
    assert first.finished_at_us == world.now_us + 9_000
    other = world.settled(key, token, RunState.DEAD, error="late")
    assert await world.runs.settle([done, other]) == set()
    assert (await world.history.get_run(world.caller, key))[0] == first


async def test_a_stale_outcome_changes_nothing(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    stale = world.settled(key, token - 1, RunState.SUCCEEDED)
    good = world.settled(key, token, RunState.DEAD, error="no")
    assert await world.runs.settle([stale]) == {key}
    assert await world.runs.settle([stale]) == {key}
    assert await world.state(key) is RunState.ARMED
    assert await world.runs.settle([good]) == set()
    assert await world.state(key) is RunState.DEAD


async def test_a_worker_that_accepts_is_running_until_it_completes(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    accepted = world.settled(key, token, RunState.RUNNING, http_status=202)
    await world.runs.settle([accepted])
    await world.runs.settle([accepted])
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.finished_at_us) == (RunState.RUNNING, 1, None)
    skip = world.settled(key, token, RunState.SKIPPED, skip_reason=SkipReason.OVERLAP)
    await world.runs.settle([skip])
    assert await world.state(key) is RunState.RUNNING
    await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)])
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


async def test_an_overlap_is_skipped_without_an_attempt(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    skip = world.settled(
        key,
        token,
        RunState.SKIPPED,
        skip_reason=SkipReason.OVERLAP,
        started_at_us=None,
        lateness_us=None,
    )
    await world.runs.settle([skip])
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.skip_reason) == (
        RunState.SKIPPED,
        0,
        SkipReason.OVERLAP,
    )


@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_run_that_dies_without_an_attempt_counts_none(world: World, earlier: int) -> None:
    """A second attempt, after a redrive, is then the first one."""
    lease = await world.own_all()
    job = await world.register(world.now_us)
    key, token = await world.arm(lease, job, world.now_us)
    if earlier:
        failed = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us)
        assert await world.runs.settle([failed]) == set()
        token = world.token()
        retry = ClaimedRetry(key=key, retry_at_us=world.now_us, token=token)
        assert len(await world.timers.arm_retries(lease, [retry])) == 1
    unclaimed = world.settled(key, token, RunState.DEAD, error="unclaimed", is_attempt=False)
    assert await world.runs.settle([unclaimed]) == set()
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.error) == (RunState.DEAD, earlier, "unclaimed")
    assert len(attempts) == earlier
    assert await world.history.retry(world.caller, [key]) == set()
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.counted_attempt, len(attempts)) == (RunState.RETRYING, 0, earlier)


async def test_an_unknown_run_is_not_stale_and_is_not_made(world: World) -> None:
    job = await world.register(world.now_us)
    key, _ = await world.arm(await world.own_all(), job, world.now_us)
    unknown = key._replace(job_id=world.job().job_id)
    assert await world.runs.settle([world.settled(unknown, 1, RunState.SUCCEEDED)]) == set()
    assert await world.runs.revalidate([unknown]) == []


async def test_the_next_owner_finds_what_is_unfinished_and_adopts_it(world: World) -> None:
    jobs = [await world.register(world.now_us, name) for name in ("armed", "running", "done")]
    dead = await world.own_all()
    armed, running, done = [await world.arm(dead, job, world.now_us) for job in jobs]
    await world.runs.settle(
        [
            world.settled(*running, RunState.RUNNING),
            world.settled(*done, RunState.SUCCEEDED),
        ]
    )
    await world.leases.leave(dead)
    owner = await world.own_all()
    registry = await world.runs.list_unfinished(owner, ALL, 10)
    assert set(registry) == {armed[0], running[0]}

    token = 2 << 32
    adoptions = [Adoption(armed[0], armed[1], token), Adoption(running[0], running[1], token)]
    assert await world.runs.adopt(owner, adoptions) == set()
    assert await world.runs.adopt(owner, adoptions) == {armed[0], running[0]}
    checked = {row.run.key: row.run for row in await world.runs.revalidate([armed[0], running[0]])}
    assert checked[armed[0]].token == token
    assert checked[running[0]].state is RunState.RUNNING

    late = world.settled(*armed, RunState.SUCCEEDED)
    assert await world.runs.settle([late]) == {armed[0]}
    assert await world.state(armed[0]) is RunState.ARMED
    with pytest.raises(LeaseLost):
        await world.runs.adopt(dead, adoptions)


async def test_a_token_never_goes_back(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    assert await world.runs.adopt(lease, [Adoption(key, token, token)]) == {key}


async def in_pages(world: World, lease: Lease, limit: int) -> list[RunKey]:
    """The unfinished runs, some of each partition at a time."""
    seen: list[RunKey] = []
    after: dict[int, RunKey] = {}
    while page := await world.runs.list_unfinished(lease, ALL, limit, after):
        assert max(Counter(partition_of(key.job_id) for key in page).values()) <= limit
        seen += page
        after |= {partition_of(key.job_id): key for key in page}
    return seen


@pytest.mark.parametrize("limit", [1, 3, 10])
async def test_runs_of_one_job_come_in_pages_by_due_time(world: World, limit: int) -> None:
    """Those that wait, those that are armed again, and those armed for the first time."""
    job = await world.register(world.now_us)
    lease = await world.own_all()
    first, _ = await world.arm(lease, job, world.now_us)
    instants = [requested_due_us(world.now_us, index) for index in range(7)]
    wanted = [
        RequestedRun(key=RunKey(job.job_id, due_us), trigger=Trigger.BACKFILL)
        for due_us in instants
    ]
    requested = await world.history.request(world.caller, wanted)
    again = [ClaimedRetry(key, key.due_us, world.token()) for key in requested[2:4]]
    assert len(await world.timers.arm_retries(lease, again)) == 2
    assert await in_pages(world, lease, limit) == [first, *requested]
    assert await world.runs.list_unfinished(lease, ALL, 20, is_first=True) == [first]


async def test_unfinished_runs_come_in_pages_and_only_of_what_is_owned(world: World) -> None:
    lease = await world.own_all()
    keys = set()
    for number in range(7):
        job = await world.register(world.now_us + number * 1_000, f"job {number}")
        keys.add((await world.arm(lease, job, world.now_us + number * 1_000))[0])
    seen = await in_pages(world, lease, limit=1)
    assert len(seen) == 7
    assert set(seen) == keys
    given_up = partition_of(seen[0].job_id)
    lease = await world.leases.release(lease, [given_up])
    left = await world.runs.list_unfinished(lease, ALL, 10)
    assert all(partition_of(key.job_id) != given_up for key in left)


async def test_waiting_runs_are_paged_with_the_others(world: World) -> None:
    lease = await world.own_all()
    keys = set()
    for number in range(9):
        due_us = world.now_us + number * 1_000
        job = await world.register(due_us, f"job {number}")
        key, token = await world.arm(lease, job, due_us)
        keys.add(key)
        if number % 3:
            failed = world.settled(key, token, RunState.RETRYING, retry_at_us=due_us)
            await world.runs.settle([failed])
    await world.timers.advance(lease, world.marks(ALL, world.now_us))
    seen = await in_pages(world, lease, limit=1)
    assert len(seen) == 9
    assert set(seen) == keys


async def test_the_mark_bounds_the_sweep_and_arming_lowers_it(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, world.now_us)
    partition = partition_of(job.job_id)
    await world.timers.advance(lease, world.marks([partition], world.now_us + 1))
    assert await world.runs.list_unfinished(lease, ALL, 10) == []
    early_us = world.now_us - MINUTE_US
    resumed = await world.jobs.pause(world.caller, job.job_id)
    resumed = await world.jobs.resume(world.caller, job.job_id, early_us)
    await world.arm(lease, resumed.job, early_us)
    registry = await world.runs.list_unfinished(lease, ALL, 10)
    assert [each.due_us for each in registry] == [early_us, key.due_us]


async def test_a_run_with_a_retry_is_found_whatever_the_mark_says(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    failed = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us)
    await world.runs.settle([failed])
    marks = world.marks([partition_of(job.job_id)], world.now_us + MINUTE_US)
    await world.timers.advance(lease, marks)
    (waiting,) = await world.registry(lease)
    assert (waiting.key, waiting.state) == (key, RunState.RETRYING)
    again = ClaimedRetry(key, world.now_us, world.token())
    await world.timers.arm_retries(lease, [again])
    assert await world.runs.list_unfinished(lease, ALL, 10) == [key]
    await world.runs.settle([world.settled(key, again.token, RunState.SUCCEEDED)])
    assert await world.runs.list_unfinished(lease, ALL, 10) == []


@pytest.mark.parametrize("http_status", [202, None])
async def test_a_running_run_is_found_whatever_the_mark_says(
    world: World, http_status: int | None
) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    await world.runs.settle([world.settled(key, token, RunState.RUNNING, http_status=http_status)])
    marks = world.marks([partition_of(job.job_id)], world.now_us + MINUTE_US)
    await world.timers.advance(lease, marks)
    assert await world.runs.list_unfinished(lease, ALL, 10) == [key]
    assert (await world.timers.load(ALL, world.now_us + MINUTE_US)).retries == ()
    await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)])
    assert await world.runs.list_unfinished(lease, ALL, 10) == []


async def test_only_the_owner_moves_the_mark(world: World) -> None:
    job = await world.register(world.now_us)
    first = await world.own_all()
    await world.arm(first, job, world.now_us)
    await world.leases.leave(first)
    second = await world.own_all()
    marks = world.marks([partition_of(job.job_id)], world.now_us + 1)
    await world.timers.advance(first, marks)
    bystander = await world.leases.join(uuid4(), TTL_US)
    await world.timers.advance(bystander, marks)
    assert len(await world.runs.list_unfinished(second, ALL, 10)) == 1


async def test_a_mark_that_is_sent_again_hides_nothing_that_was_armed_since(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    marks = world.marks([partition_of(job.job_id)], world.now_us + 1)
    await world.timers.advance(lease, marks)
    key, _ = await world.arm(lease, job, world.now_us)
    await world.timers.advance(lease, marks)
    assert await world.runs.list_unfinished(lease, ALL, 10) == [key]


async def test_missed_runs_lower_the_mark_too(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    marks = world.marks([partition_of(job.job_id)], world.now_us + MINUTE_US)
    await world.timers.advance(lease, marks)
    late = ClaimedRun(world.now_us, world.token(), Lane.LATE)
    assert await world.timers.arm(lease, [world.claim(job, world.now_us, runs=(late,))]) == set()
    registry = await world.runs.list_unfinished(lease, ALL, 10)
    assert [each.due_us for each in registry] == [world.now_us]


async def test_runs_that_share_an_ending_each_keep_their_own_fence(world: World) -> None:
    """Neighbours of two due times, with a stale outcome and another ending between them."""
    lease = await world.own_all()
    dues_us = [world.now_us + (place >= 3) for place in range(6)]
    jobs = [await world.register(due_us, f"job {place}") for place, due_us in enumerate(dues_us)]
    armed = [await world.arm(lease, job, due_us) for job, due_us in zip(jobs, dues_us, strict=True)]
    shared = world.settled(*armed[0], RunState.SUCCEEDED, http_status=200).ending
    settled = [Settled(key, token, shared) for key, token in armed]
    stale = settled[1] = Settled(armed[1][0], armed[1][1] + 1, shared)
    settled[4] = world.settled(*armed[4], RunState.DEAD, error="no")
    assert await world.runs.settle(settled) == {stale.key}
    states = [await world.state(key) for key, _ in armed]
    succeeded = RunState.SUCCEEDED
    assert states == [succeeded, RunState.ARMED, *[succeeded] * 2, RunState.DEAD, succeeded]
    run, _ = await world.history.get_run(world.caller, armed[5][0])
    assert (run.finished_at_us, run.http_status) == (shared.finished_at_us, 200)
    assert await world.list_dead() == [armed[4][0]]


async def test_first_and_second_attempts_succeed_in_one_batch_with_others(world: World) -> None:
    lease = await world.own_all()
    jobs = [await world.register(world.now_us, f"job {place}") for place in range(4)]
    armed = [await world.arm(lease, job, world.now_us) for job in jobs]
    (again, token), first, failing, accepted = armed
    failed = world.settled(again, token, RunState.RETRYING, retry_at_us=world.now_us, error="no")
    await world.runs.settle([failed])
    second = ClaimedRetry(again, world.now_us, world.token())
    await world.timers.arm_retries(lease, [second])
    await world.runs.settle([world.settled(*accepted, RunState.RUNNING, http_status=202)])
    settled = [
        world.settled(again, second.token, RunState.SUCCEEDED, http_status=201),
        world.settled(*first, RunState.SUCCEEDED, http_status=200),
        world.settled(*failing, RunState.RETRYING, retry_at_us=world.now_us),
        world.settled(*accepted, RunState.SUCCEEDED),
    ]
    assert await world.runs.settle(settled) == set()
    runs = [(await world.history.get_run(world.caller, key))[0] for key, _ in armed]
    assert [(run.state, run.attempt, run.http_status) for run in runs] == [
        (RunState.SUCCEEDED, 2, 201),
        (RunState.SUCCEEDED, 1, 200),
        (RunState.RETRYING, 1, None),
        (RunState.SUCCEEDED, 1, None),
    ]
    assert [run.error for run in runs] == [None] * 4
    waiting = (await world.timers.load(ALL, world.now_us + MINUTE_US)).retries
    assert [retry.key for retry in waiting] == [failing[0]]


async def test_an_attempt_that_never_reached_a_socket_has_no_start(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    failed = world.settled(
        key, token, RunState.RETRYING, retry_at_us=world.now_us, started_at_us=None
    )
    await world.runs.settle([failed])
    _, (attempt,) = await world.history.get_run(world.caller, key)
    assert attempt.started_at_us is None


async def test_a_run_that_was_accepted_is_not_handed_over(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    accepted = world.settled(key, token, RunState.RUNNING, http_status=202)
    await world.runs.settle([accepted])
    carried = world.settled(key, token, RunState.RUNNING, http_status=None)
    assert await world.runs.settle([carried]) == set()
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.http_status) == (RunState.RUNNING, 202)


async def test_two_outcomes_of_one_run_are_written_one_after_the_other(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    accepted = world.settled(key, token, RunState.RUNNING, http_status=202)
    done = world.settled(key, token, RunState.SUCCEEDED, http_status=200)
    assert await world.runs.settle([accepted, done, accepted]) == set()
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.http_status, run.attempt) == (RunState.SUCCEEDED, 200, 1)


async def test_an_outcome_is_written_whatever_the_worker_sent(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    odd = world.settled(
        key,
        token,
        RunState.RETRYING,
        retry_at_us=world.now_us,
        http_status=99_999,
        error="a\0b\ud800c",
    )
    assert await world.runs.settle([odd]) == set()
    assert await world.runs.settle([replace(odd, token=token - 1)]) == {key}
    run, (attempt,) = await world.history.get_run(world.caller, key)
    assert (run.http_status, run.error) == (None, "a?b?c")
    assert attempt.outcome == Failed(error="a?b?c", http_status=None)


async def test_nothing_needs_no_lease(world: World) -> None:
    gone = Lease(uuid4(), 1)
    assert await world.leases.acquire(gone, []) == []
    assert await world.timers.arm(gone, []) == set()
    assert await world.timers.arm_retries(gone, []) == []
    assert await world.runs.adopt(gone, []) == set()
    assert await world.runs.settle([]) == set()
    assert await world.runs.revalidate([]) == []
    assert await world.history.retry(world.caller, []) == set()
    assert await world.history.request(world.caller, []) == []
