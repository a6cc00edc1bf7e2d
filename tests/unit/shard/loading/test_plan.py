"""Stage *plan*: drafts that applications write in their own transactions, in virtual time."""

import asyncio
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.unit.shard.world import World

from wheelsched.config import LoadConfig
from wheelsched.core.model import Draft, Job, JobState, RunKey, RunState, SkipReason
from wheelsched.core.outcome import Failed
from wheelsched.errors import JobNotFound, StoreFault
from wheelsched.jobs import drafts
from wheelsched.ports import JobFilter, Plan
from wheelsched.shard.loading import plan


def schedule(world: World, schedule: str, name: str = "job", **fields: object) -> UUID:
    """Schedules a job as an application; `+5` is a one-off five seconds from the start."""
    if schedule.startswith("+"):
        schedule = world.iso(float(schedule[1:]))
    document = {"name": name, "schedule": schedule, "target": {"url": "http://worker.example/"}}
    return world.store.application.schedule(world.caller, uuid4(), document | fields).job_id


async def read(world: World, job_id: UUID) -> Job | Draft:
    return await world.store.jobs.read(world.caller, job_id)


async def states(world: World, job_id: UUID) -> list[tuple[RunState, SkipReason | None]]:
    runs = await world.store.history.list_runs(world.caller, job_id, 99)
    return [(run.state, run.skip_reason) for run in runs]


async def test_an_imminent_one_off_fires_on_time(world: World) -> None:
    world.start()
    await world.advance(5)
    job_id = schedule(world, "+5.05", payload={"order": 7})
    await world.advance(1)
    ((at_s, callback),) = world.arrived
    assert (round(at_s, 3), callback.key.job_id) == (5.05, job_id)
    assert msgspec.json.decode(callback.payload) == {"order": 7}
    await world.advance(5)
    assert (await read(world, job_id)).state is JobState.FINISHED


async def test_a_recurring_job_is_planned_on_the_hint(world: World) -> None:
    world.start()
    await world.advance(5.5)
    job_id = schedule(world, "*/2 * * * * *")
    await world.advance(5)
    assert world.times == [6.0, 8.0, 10.0]
    assert (await read(world, job_id)).state is JobState.ACTIVE


async def test_without_hints_a_draft_is_planned_at_the_next_refresh(world: World) -> None:
    world.link.is_deaf = True
    world.start()
    await world.advance(5)
    soon, later = schedule(world, "+20", "soon"), schedule(world, "+300", "later")
    await world.advance(75)
    assert {key.job_id for key in world.keys} == {soon}  # late, within its grace
    await world.advance(300)
    assert {key.job_id for key in world.keys} == {soon, later}
    assert world.times[1] == 300.0


async def test_a_run_due_before_planning_is_a_misfire_and_not_lost(world: World) -> None:
    skipped = schedule(world, "+20", "skipped", misfire={"policy": "skip"})
    fired = schedule(world, "+20", "fired")
    await world.advance(120)
    world.start()
    await world.advance(5)
    assert {key.job_id for key in world.keys} == {fired}
    assert await states(world, skipped) == [(RunState.SKIPPED, SkipReason.MISFIRE_SKIP)]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"schedule": "99 * * * *"}, "/schedule: "),
        ({"schedule": "2020-01-01T00:00:00Z"}, "/schedule: "),
        ({"timezone": "Nowhere/Atall"}, "/timezone: "),
        ({"target": {"url": "http://127.0.0.1/"}}, "/target/url: "),
        ({"retry": {"max_attempts": 10**6}, "timeout": "0s"}, "/retry/max_attempts: "),
        ({"retry": {"unknown": 1}}, "/retry/unknown: "),
        ({"priority": "high"}, "/priority: "),
    ],
)
async def test_an_invalid_draft_is_refused_with_its_reason(
    world: World, fields: dict[str, object], error: str
) -> None:
    world.start()
    await world.advance(5)
    document = {"name": "bad", "schedule": "* * * * *", "target": {"url": "http://w.example/"}}
    bad = world.store.application.schedule(world.caller, uuid4(), document | fields)
    good = schedule(world, "+7", "good")
    await world.advance(5)
    refused = await read(world, bad.job_id)
    assert isinstance(refused, Draft)
    assert refused.state is JobState.REFUSED
    assert refused.error is not None
    assert refused.error.startswith(error)
    assert {key.job_id for key in world.keys} == {good}
    wanted = JobFilter(state=JobState.REFUSED)
    assert await world.store.jobs.list_jobs(world.caller, wanted, 9) == [refused]


async def test_an_internal_error_refuses_one_draft_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = drafts.judge_draft

    def faulty(draft: Draft, **rules: object) -> object:
        if draft.name == "bad":
            raise ZeroDivisionError
        return judge(draft, **rules)  # type: ignore[arg-type]

    monkeypatch.setattr("tests.unit.shard.world.judge_draft", faulty)
    world.start()
    await world.advance(5)
    bad, good = schedule(world, "+7", "bad"), schedule(world, "+7", "good")
    await world.advance(5)
    refused = await read(world, bad)
    assert isinstance(refused, Draft)
    assert refused.error == plan.OUR_FAULT
    assert {key.job_id for key in world.keys} == {good}


async def test_a_draft_that_cannot_be_stored_is_refused_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = world.store.plans.plan

    async def faulty(lease: object, plans: list[Plan]) -> object:
        if any(each.draft.name == "bad" and each.registration for each in plans):
            raise StoreFault
        return await write(lease, plans)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store.plans, "plan", faulty)
    world.start()
    job_ids = [schedule(world, "+7", name) for name in ("a", "b", "bad", "c", "d")]
    await world.advance(10)
    refused = await read(world, job_ids[2])
    assert isinstance(refused, Draft)
    assert refused.error == plan.UNSTORABLE
    assert {key.job_id for key in world.keys} == set(job_ids) - {job_ids[2]}


async def test_thousands_of_drafts_are_planned_page_by_page(world: World) -> None:
    count = 2 * LoadConfig().plan_batch + 7
    for number in range(count):
        schedule(world, "+60", f"job {number}")
    world.start()
    await world.advance(61)
    assert len(world.keys) == count


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_job_cancelled_a_second_before_does_not_fire(world: World, is_deaf: bool) -> None:
    world.link.is_deaf = is_deaf
    job_id = schedule(world, "+10")
    world.start()
    await world.advance(9)
    assert await states(world, job_id) == [(RunState.ARMED, None)] or is_deaf
    assert world.store.application.cancel(world.caller, job_id) is not None
    await world.advance(1.5)
    assert world.arrived == []
    await world.advance(120)
    assert await states(world, job_id) in ([(RunState.SKIPPED, SkipReason.DELETED)], [])
    horizon = await world.store.timers.reload([job_id], world.now_us())
    assert len(horizon) == 0


async def test_an_armed_run_of_a_cancelled_job_is_skipped_at_once(world: World) -> None:
    job = await world.register("+30")
    world.start()
    await world.advance(29.5)
    (run,) = await world.runs(job)
    assert run.state is RunState.ARMED
    world.store.application.cancel(world.caller, job.job_id)
    await world.advance(0.2)
    assert await states(world, job.job_id) == [(RunState.SKIPPED, SkipReason.DELETED)]
    await world.advance(5)
    assert world.arrived == []


async def test_a_run_of_a_cancelled_job_is_not_retried(world: World) -> None:
    async def fail(*_: object) -> list[Failed]:
        return [Failed(error="busy")]

    world.handler = fail
    world.start()
    job_id = schedule(world, "+5", retry={"initial": "20s", "max": "20s"})
    await world.advance(5.5)
    assert await states(world, job_id) == [(RunState.RETRYING, None)]
    assert world.store.application.cancel(world.caller, job_id) is True
    await world.advance(120)
    assert await states(world, job_id) == [(RunState.CANCELLED, None)]
    assert len(world.arrived) == 1


async def test_the_next_owner_plans_and_clears_the_drafts_of_a_dead_shard(world: World) -> None:
    world.start("a")
    cancelled = await world.register("+20", "cancelled")
    await world.advance(5)
    await world.kill("a")
    scheduled = schedule(world, "+16", "scheduled")
    world.store.application.cancel(world.caller, cancelled.job_id)
    world.start("b")
    await world.advance(60)
    assert list(world.keys) == [RunKey(scheduled, world.arrived[0][1].key.due_us)]
    with pytest.raises(JobNotFound):
        await read(world, cancelled.job_id)
    horizon = await world.store.timers.load(range(256), world.now_us() + 10**12)
    assert cancelled.job_id not in {job_id for job_id, _, _ in horizon}


async def test_a_locked_draft_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = world.store.plans.plan
    is_locked = asyncio.Event()

    async def passing_by(lease: object, plans: list[Plan]) -> object:
        unlocked = [each for each in plans if not is_locked.is_set()]
        return await write(lease, unlocked)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store.plans, "plan", passing_by)
    world.start()
    is_locked.set()
    schedule(world, "+6")
    await world.advance(4)
    is_locked.clear()
    await world.advance(3)
    assert world.times == [6.0]
