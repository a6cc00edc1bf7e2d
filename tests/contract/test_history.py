"""Runs of a tenant, on memory and on Postgres."""

import asyncio
from uuid import UUID, uuid4

import pytest
from msgspec import Raw
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import Job, Lane, RunKey, RunState, Trigger, requested_due_us
from wheelsched.core.outcome import Failed
from wheelsched.errors import JobNotFound, RunNotFound, RunNotLive, TooManyRuns
from wheelsched.ports import Adoption, ClaimedRetry, DeadFilter, Lease, RequestedRun, Retry
from wheelsched.values.duration import DAY


async def die(world: World, lease: Lease, job: Job, due_us: int) -> RunKey:
    key, token = await world.arm(lease, job, due_us)
    await world.runs.settle([world.settled(key, token, RunState.DEAD, error="boom")])
    return key


async def test_runs_are_listed_latest_first_in_pages(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    keys = [(await world.arm(lease, job, world.now_us + n * MINUTE_US))[0] for n in range(5)]
    first = await world.history.list_runs(world.caller, job.job_id, 3)
    rest = await world.history.list_runs(world.caller, job.job_id, 3, first[-1].due_us)
    assert [run.key for run in [*first, *rest]] == keys[::-1]
    following = await world.history.list_runs_from(
        world.caller, job.job_id, 2, world.now_us + MINUTE_US
    )
    assert [run.key for run in following] == keys[1:3]


async def test_a_run_that_is_not_there(world: World) -> None:
    job = await world.register(world.now_us)
    key = RunKey(job.job_id, world.now_us)
    with pytest.raises(RunNotFound):
        await world.history.get_run(world.caller, key)
    with pytest.raises(RunNotFound):
        await world.history.cancel(world.caller, key)
    assert await world.history.retry(world.caller, [key]) == {key}


async def test_a_requested_run_waits_for_its_shard_and_uses_up_no_due_time(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key = RunKey(job.job_id, requested_due_us(world.now_us))
    requested = RequestedRun(key=key, trigger=Trigger.MANUAL, request_id=uuid4())
    assert await world.history.request(world.caller, [requested]) == [key]
    assert await world.history.request(world.caller, [requested]) == [key]
    assert (await world.timers.load(ALL, key.due_us)).retries == (Retry(key, key.due_us),)
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.trigger, run.attempt) == (RunState.RETRYING, Trigger.MANUAL, 0)
    assert run.lane is Lane.ON_TIME
    assert await world.due(job) == world.now_us

    claimed = ClaimedRetry(key, key.due_us, world.token())
    assert [run.key for run in await world.timers.arm_retries(lease, [claimed])] == [key]
    await world.runs.settle([world.settled(key, claimed.token, RunState.SUCCEEDED)])
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, attempts) == (RunState.SUCCEEDED, 1, [])
    assert await world.runs.list_unfinished(lease, ALL, 10) == []


async def test_a_run_keeps_the_payload_that_it_was_requested_with(world: World) -> None:
    job = await world.register(None)
    own = Raw(b'{ "as" :\t"written" }')
    keys = [RunKey(job.job_id, requested_due_us(world.now_us, n)) for n in range(2)]
    request_id = uuid4()
    requested = [
        RequestedRun(key=key, trigger=Trigger.MANUAL, request_id=request_id, payload=payload)
        for key, payload in zip(keys, (own, None), strict=True)
    ]
    assert await world.history.request(world.caller, requested) == keys
    assert await world.history.request(world.caller, requested) == keys
    found = await world.timers.read_payloads([*keys, RunKey(uuid4(), 0)])
    assert {key: bytes(payload) for key, payload in found.items()} == {keys[0]: bytes(own)}
    assert await world.timers.read_payloads([]) == {}


async def test_a_backfill_remembers_what_it_stands_for(world: World) -> None:
    job = await world.register(world.now_us)
    hole_us = world.now_us - 60 * MINUTE_US
    key = RunKey(job.job_id, requested_due_us(world.now_us, 3))
    requested = RequestedRun(key=key, trigger=Trigger.BACKFILL, backfill_of_us=hole_us)
    await world.history.request(world.caller, [requested])
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.trigger, run.scheduled_us) == (Trigger.BACKFILL, hole_us)
    assert run.lane is Lane.LATE


async def test_a_job_has_a_bound_of_unfinished_requested_runs(world: World) -> None:
    job, other = [await world.register(world.now_us, name) for name in ("one", "other")]
    lease = await world.own_all()

    def wanted(job: Job, count: int, request_id: UUID | None = None) -> list[RequestedRun]:
        instants = [requested_due_us(world.now_us, index) for index in range(count)]
        return [
            RequestedRun(
                key=RunKey(job.job_id, due_us), trigger=Trigger.BACKFILL, request_id=request_id
            )
            for due_us in instants
        ]

    request_id = uuid4()
    made = await world.history.request(world.caller, wanted(job, 3, request_id), most=4)
    with pytest.raises(TooManyRuns, match=r"has 3 unfinished requested runs.*adds 2; at most 4"):
        await world.history.request(world.caller, wanted(job, 2), most=4)
    assert await world.history.request(world.caller, wanted(job, 3, request_id), most=4) == made
    assert len(await world.runs.list_unfinished(lease, ALL, 10)) == 3
    await world.history.request(world.caller, wanted(job, 1), most=4)
    with pytest.raises(TooManyRuns):
        await world.history.request(world.caller, wanted(job, 1), most=4)
    await world.history.request(world.caller, wanted(other, 4), most=4)
    again = ClaimedRetry(made[0], made[0].due_us, world.token())
    await world.timers.arm_retries(lease, [again])
    with pytest.raises(TooManyRuns):  # an armed one is unfinished
        await world.history.request(world.caller, wanted(job, 1), most=4)
    await world.runs.settle([world.settled(made[0], again.token, RunState.SUCCEEDED)])
    await world.history.request(world.caller, wanted(job, 1), most=4)


async def test_a_tenant_cannot_request_runs_of_anothers_job(world: World) -> None:
    job = await world.register(world.now_us)
    requested = RequestedRun(
        key=RunKey(job.job_id, requested_due_us(world.now_us)), trigger=Trigger.MANUAL
    )
    with pytest.raises(JobNotFound):
        await world.history.request(world.other, [requested])


def backfill(world: World, job: Job, holes: range, request_id: UUID | None) -> list[RequestedRun]:
    """Holes of some minutes, all asked for at one moment."""
    return [
        RequestedRun(
            key=RunKey(job.job_id, requested_due_us(world.now_us, index)),
            trigger=Trigger.BACKFILL,
            backfill_of_us=world.now_us - hole * MINUTE_US,
            request_id=request_id,
        )
        for index, hole in enumerate(holes)
    ]


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_requests_of_one_moment_lose_no_run_to_each_other(
    world: World, is_keyed: bool
) -> None:
    job = await world.register(world.now_us)
    ranges = [range(1, 40), range(100, 160), range(200, 210)]
    asked = [backfill(world, job, holes, uuid4() if is_keyed else None) for holes in ranges]
    made = await asyncio.gather(*(world.history.request(world.caller, each) for each in asked))
    assert [len(keys) for keys in made] == [len(holes) for holes in ranges]
    assert len({key for keys in made for key in keys}) == sum(map(len, ranges))
    for holes, keys in zip(ranges, made, strict=True):
        runs = [(await world.history.get_run(world.caller, key))[0] for key in keys]
        assert [run.backfill_of_us for run in runs] == [
            world.now_us - hole * MINUTE_US for hole in holes
        ]
        assert all(key.due_us % 1_000 for key in keys)
    if is_keyed:  # each finds its own again, wherever they were moved to
        assert [await world.history.request(world.caller, each) for each in asked] == made
    assert len(await world.history.list_runs(world.caller, job.job_id, 999)) == 109


async def test_two_triggers_of_one_microsecond_are_two_runs(world: World) -> None:
    job = await world.register(world.now_us)
    key = RunKey(job.job_id, requested_due_us(world.now_us))
    keyed = [
        RequestedRun(key=key, trigger=Trigger.MANUAL, request_id=request_id)
        for request_id in (uuid4(), uuid4(), None)
    ]
    made = [await world.history.request(world.caller, [each]) for each in keyed]
    assert [keys[0].due_us - key.due_us for keys in made] == [0, 1, 2]
    assert await world.history.request(world.caller, [keyed[1]]) == made[1]


async def test_a_request_that_is_moved_past_midnight_makes_its_day(world: World) -> None:
    """Far ahead, where nobody has made the tables of the days: not its own, nor the next."""
    job = await world.register(world.now_us)
    midnight_us = (world.now_us // DAY + 40) * DAY
    key = RunKey(job.job_id, midnight_us - 1)
    requested = RequestedRun(key=key, trigger=Trigger.MANUAL)
    made = [await world.history.request(world.caller, [requested]) for _ in range(2)]
    assert [keys[0].due_us - midnight_us for keys in made] == [-1, 1]
    for keys in made:
        assert (await world.history.get_run(world.caller, keys[0]))[0].state is RunState.RETRYING


async def test_cancelling_says_whether_it_was_in_time(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    sent, token = await world.arm(lease, job, world.now_us)
    early, _ = await world.arm(lease, job, world.now_us + MINUTE_US)
    assert await world.history.cancel(world.caller, early) is True
    assert await world.history.cancel(world.caller, sent) is False
    assert await world.history.cancel(world.caller, sent) is False
    assert await world.runs.settle([world.settled(sent, token, RunState.SUCCEEDED)]) == set()
    assert await world.state(sent) is RunState.CANCELLED


async def test_a_run_that_has_ended_cannot_be_cancelled(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key = await die(world, lease, job, world.now_us)
    with pytest.raises(RunNotLive):
        await world.history.cancel(world.caller, key)


async def test_a_waiting_run_is_cancelled_in_time(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    await world.runs.settle(
        [world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us)]
    )
    assert await world.history.cancel(world.caller, key) is True
    assert (await world.timers.load(ALL, world.now_us)).retries == ()
    claimed = ClaimedRetry(key, world.now_us, world.token())
    assert await world.timers.arm_retries(lease, [claimed]) == []


async def test_the_dead_are_listed_and_leave_the_list_when_retried(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    keys = [await die(world, lease, job, world.now_us + n * MINUTE_US) for n in range(3)]
    assert await world.list_dead(2) == keys[:2]
    assert await world.list_dead(2, keys[1]) == keys[2:]
    assert await world.history.list_dead(world.other, DeadFilter(), 2) == []
    assert await world.history.retry(world.caller, keys[:1]) == set()
    assert await world.history.retry(world.caller, keys[:1]) == set(keys[:1])
    assert await world.list_dead() == keys[1:]


async def test_the_dead_are_filtered_by_job_and_time(world: World) -> None:
    job, other = await world.register(world.now_us), await world.register(world.now_us, "other")
    lease = await world.own_all()
    keys = [await die(world, lease, job, world.now_us + n * MINUTE_US) for n in range(3)]
    theirs = await die(world, lease, other, world.now_us)

    async def dead(**wanted: object) -> list[RunKey]:
        found = await world.history.list_dead(world.caller, DeadFilter(**wanted), 9)  # type: ignore[arg-type]
        return [run.key for run in found]

    assert await dead(job_id=other.job_id) == [theirs]
    assert await dead(since_us=keys[1].due_us) == keys[1:]
    assert await dead(job_id=job.job_id, until_us=keys[1].due_us) == keys[:1]
    assert await dead(since_us=keys[2].due_us + 1) == []


async def test_retried_runs_are_spread_when_that_is_asked_for(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    keys = [await die(world, lease, job, world.now_us + n * MINUTE_US) for n in range(3)]
    await world.history.retry(world.caller, keys, delay_us=10 * MINUTE_US, spacing_us=MINUTE_US)
    horizon = await world.timers.load(ALL, world.now_us + 60 * MINUTE_US)
    waits_us = {retry.key: retry.retry_at_us - world.now_us for retry in horizon.retries}
    assert [waits_us[key] // MINUTE_US for key in keys] == [10, 11, 12]


async def test_a_retried_run_counts_its_attempts_from_there(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key = await die(world, lease, job, world.now_us)
    await world.history.retry(world.caller, [key])
    run, [died] = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.attempts_before) == (RunState.RETRYING, 1, 1)
    assert (died.attempt, died.outcome) == (1, Failed(error="boom"))
    assert died.finished_at_us is not None
    assert run.lane is Lane.LATE
    assert run.finished_at_us is None
    assert run.retry_at_us is not None
    claimed = ClaimedRetry(key, run.retry_at_us, world.token())
    assert [run.key for run in await world.timers.arm_retries(lease, [claimed])] == [key]
    await world.runs.settle([world.settled(key, claimed.token, RunState.SUCCEEDED)])
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.counted_attempt) == (RunState.SUCCEEDED, 2, 1)
    assert attempts == [died]  # the last is in the run itself


async def test_a_run_that_is_retried_ahead_of_its_time_waits_for_it(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    await world.history.cancel(world.caller, key)
    await world.history.retry(world.caller, [key])
    run, _ = await world.history.get_run(world.caller, key)
    assert run.retry_at_us == due_us - due_us % 1_000


async def test_a_run_that_ended_since_is_not_retried(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key = await die(world, lease, job, world.now_us)
    run, _ = await world.history.get_run(world.caller, key)
    ended_us = run.finished_at_us
    assert ended_us is not None
    assert await world.history.retry(world.caller, [key], ended_by_us=ended_us - 1) == {key}
    assert await world.history.retry(world.caller, [key], ended_by_us=ended_us) == set()


async def test_a_cancelled_run_that_is_retried_is_swept_until_it_ends(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    await world.history.cancel(world.caller, key)
    await world.history.retry(world.caller, [key])
    run, _ = await world.history.get_run(world.caller, key)
    assert run.retry_at_us is not None
    claimed = ClaimedRetry(key, run.retry_at_us, world.token())
    await world.timers.arm_retries(lease, [claimed])
    assert await world.runs.list_unfinished(lease, ALL, 9) == [key]
    await world.runs.settle([world.settled(key, claimed.token, RunState.SUCCEEDED)])
    assert await world.runs.list_unfinished(lease, ALL, 9) == []


async def test_heartbeats_carry_the_token(world: World) -> None:
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    assert await world.history.heartbeat(world.caller, key, token)
    assert not await world.history.heartbeat(world.caller, key, token - 1)
    (checked,) = await world.runs.revalidate([key])
    assert checked.heartbeat_at_us is not None
    await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)])
    assert not await world.history.heartbeat(world.caller, key, token)


async def test_a_heartbeat_says_nothing_of_the_next_attempt(world: World) -> None:
    """Else its worker, which has just begun, would seem to have been silent for long."""
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    await world.runs.settle([world.settled(key, token, RunState.RUNNING, http_status=202)])
    assert await world.history.heartbeat(world.caller, key, token)
    await world.runs.settle(
        [world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us)]
    )
    again = ClaimedRetry(key, world.now_us, world.token())
    await world.timers.arm_retries(lease, [again])
    (checked,) = await world.runs.revalidate([key])
    assert checked.heartbeat_at_us is None
    assert await world.history.heartbeat(world.caller, key, again.token)
    adoption = Adoption(key, again.token, world.token())
    assert await world.runs.adopt(lease, [adoption]) == set()
    (checked,) = await world.runs.revalidate([key])
    assert checked.heartbeat_at_us is None
