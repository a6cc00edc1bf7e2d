"""On Postgres, dead runs outlive the table of their day: they are read, listed and redriven."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from tests.contract.conftest import MINUTE_US, World
from tests.postgres import TIMEOUTS, Connect

from wheelsched.config import StoreConfig
from wheelsched.core.model import Job, RunKey, RunState
from wheelsched.errors import RunNotFound, RunNotLive
from wheelsched.ports import ClaimedRetry, Lease
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.schema.retention import Retention
from wheelsched.store.schema.settings import Settings

DAY_US = 86_400_000_000


@pytest.fixture
def world(postgres_world: World) -> World:
    return postgres_world


@pytest.fixture
async def owner(database: str, connect: Connect) -> Connection:
    return await connect(database)


@pytest.fixture
async def retention(database: str) -> AsyncIterator[Retention]:
    async with await Database.open(StoreConfig(url=database, role="owner", **TIMEOUTS)) as opened:
        yield Retention(opened)


async def die(world: World, lease: Lease, due_us: int, name: str = "report") -> RunKey:
    """A run that was tried twice, so long ago."""
    job = await world.register(due_us, name)
    key, token = await world.arm(lease, job, due_us)
    again_us = due_us + MINUTE_US
    failed = world.settled(key, token, RunState.RETRYING, retry_at_us=again_us, error="first")
    await world.runs.settle([failed])
    claim = ClaimedRetry(key, again_us, world.token())
    (run,) = await world.timers.arm_retries(lease, [claim])
    await world.runs.settle([world.settled(key, claim.token, RunState.DEAD, error="second")])
    assert run.key == key
    return key


async def days(owner: Connection) -> set[str]:
    rows = await owner.fetch("SELECT day FROM days")
    return {row["day"].isoformat() for row in rows}


def day_of(due_us: int) -> str:
    return datetime.fromtimestamp(due_us / 1_000_000, UTC).date().isoformat()


async def test_a_dead_run_is_found_after_its_day_was_dropped(
    world: World, owner: Connection, retention: Retention
) -> None:
    lease = await world.own_all()
    old_us = world.now_us - 40 * DAY_US
    key = await die(world, lease, old_us)
    done = await world.register(old_us, "done")
    done_key, token = await world.arm(lease, done, old_us)
    await world.runs.settle([world.settled(done_key, token, RunState.SUCCEEDED)])
    before = await world.history.get_run(world.caller, key)
    assert [attempt.outcome.error for attempt in before[1]] == ["first"]  # type: ignore[union-attr]

    await retention.drop_old_days(Settings())

    assert day_of(old_us) not in await days(owner)
    assert await world.history.get_run(world.caller, key) == before
    assert await world.list_dead() == [key]
    assert await world.history.list_runs(world.caller, key.job_id, 9) == [before[0]]
    assert await world.history.list_runs_from(world.caller, key.job_id, 9, old_us) == [before[0]]
    with pytest.raises(RunNotFound):
        await world.history.get_run(world.caller, done_key)
    with pytest.raises(RunNotFound):
        await world.history.get_run(world.other, key)
    with pytest.raises(RunNotLive):
        await world.history.cancel(world.caller, key)
    late = world.settled(key, before[0].token or 0, RunState.SUCCEEDED)
    assert await world.history.answer(world.caller, late)  # it changed nothing
    stale = world.settled(key, world.token(), RunState.SUCCEEDED)
    assert not await world.history.answer(world.caller, stale)
    assert await world.history.get_run(world.caller, key) == before


async def test_the_history_of_a_job_is_in_order_wherever_it_is_kept(
    world: World, retention: Retention
) -> None:
    lease = await world.own_all()
    old_us = world.now_us - 40 * DAY_US
    dead = await die(world, lease, old_us)
    job = await world.jobs.get(world.caller, dead.job_id)
    later = [await arm_again(world, lease, job, world.now_us + n * MINUTE_US) for n in range(3)]
    await retention.drop_old_days(Settings())
    keys = [dead, *later]

    async def pages(limit: int) -> list[RunKey]:
        found: list[RunKey] = []
        before_us = None
        while page := await world.history.list_runs(world.caller, job.job_id, limit, before_us):
            found += [run.key for run in page]
            before_us = found[-1].due_us
        return found

    for limit in (1, 3, 9):
        assert await pages(limit) == keys[::-1]
    found = await world.history.list_runs_from(world.caller, job.job_id, 2, old_us)
    assert [run.key for run in found] == keys[:2]


async def arm_again(world: World, lease: Lease, job: Job, due_us: int) -> RunKey:
    timer_us = await world.due(job)
    assert timer_us is not None
    claim = world.claim(job, timer_us)
    run = replace(claim.runs[0], due_us=due_us)
    claim = replace(claim, runs=(run,), next_due_us=due_us + MINUTE_US)
    assert await world.timers.arm(lease, [claim]) == set()
    return RunKey(job.job_id, due_us)


async def test_a_dead_run_is_redriven_after_its_day_was_dropped(
    world: World, owner: Connection, retention: Retention
) -> None:
    lease = await world.own_all()
    old_us = world.now_us - 40 * DAY_US
    key = await die(world, lease, old_us)
    await retention.drop_old_days(Settings())

    assert await world.history.retry(world.other, [key]) == {key}
    assert await world.history.retry(world.caller, [key]) == set()
    assert await world.list_dead() == []
    run, attempts = await world.history.get_run(world.caller, key)
    assert run.state is RunState.RETRYING
    assert [attempt.outcome.error for attempt in attempts] == ["first", "second"]  # type: ignore[union-attr]

    await retention.drop_old_days(Settings())  # its day stays as long as it lives
    assert run.retry_at_us is not None
    claim = ClaimedRetry(key, run.retry_at_us, world.token())
    assert [each.key for each in await world.timers.arm_retries(lease, [claim])] == [key]
    await world.runs.settle([world.settled(key, claim.token, RunState.DEAD, error="third")])
    await retention.drop_old_days(Settings())
    assert day_of(old_us) not in await days(owner)
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.error, len(attempts)) == (RunState.DEAD, "third", 2)
    assert await world.list_dead() == [key]


async def test_a_dead_run_whose_job_is_gone_is_not_redriven(
    world: World, retention: Retention
) -> None:
    key = await die(world, await world.own_all(), world.now_us - 40 * DAY_US)
    await world.jobs.delete(world.caller, key.job_id)
    await retention.drop_old_days(Settings())
    assert await world.history.retry(world.caller, [key]) == {key}
    assert await world.list_dead() == [key]


async def test_dead_runs_go_when_their_own_retention_has_passed(
    world: World, owner: Connection, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheelsched.store.schema.retention.BATCH", 2)
    lease = await world.own_all()
    ages = (89, 40, 91, 40, 40, 40, 40, 92, 93)
    keys = {
        age * 100 + place: await die(world, lease, world.now_us - age * DAY_US, f"job {place}")
        for place, age in enumerate(ages)
    }
    await retention.drop_old_days(Settings())
    kept = {key for age, key in keys.items() if age < 9_000}
    assert set(await world.list_dead()) == kept
    assert await owner.fetchval("SELECT count(*) FROM kept_runs") == len(kept)
    assert await owner.fetchval("SELECT count(*) FROM kept_attempts") == len(kept)
    await retention.drop_old_days(Settings(dead_days=39))
    assert await world.list_dead() == []
    assert await owner.fetchval("SELECT count(*) FROM kept_runs") == 0
    assert await owner.fetchval("SELECT count(*) FROM kept_attempts") == 0


@pytest.mark.parametrize("state", [RunState.ARMED, RunState.RETRYING])
async def test_a_day_with_a_live_run_stays_until_it_has_ended(
    world: World, owner: Connection, retention: Retention, state: RunState
) -> None:
    lease = await world.own_all()
    old_us = world.now_us - 40 * DAY_US
    job = await world.register(old_us)
    key, token = await world.arm(lease, job, old_us)
    if state is RunState.RETRYING:
        retrying = world.settled(key, token, state, retry_at_us=world.now_us + DAY_US)
        await world.runs.settle([retrying])
    await retention.drop_old_days(Settings())
    assert await world.state(key) is state
    assert await world.registry(lease) != []
    await world.history.cancel(world.caller, key)
    await retention.drop_old_days(Settings())
    assert day_of(old_us) not in await days(owner)


async def test_a_live_run_past_every_retention_goes(
    world: World, owner: Connection, retention: Retention
) -> None:
    old_us = world.now_us - 91 * DAY_US
    job = await world.register(old_us)
    key, token = await world.arm(await world.own_all(), job, old_us)
    retrying = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us + DAY_US)
    await world.runs.settle([retrying])
    await retention.drop_old_days(Settings())
    assert day_of(old_us) not in await days(owner)
    assert await owner.fetchval("SELECT count(*) FROM retries") == 0


async def test_a_finished_job_stays_as_long_as_its_dead_run(
    world: World, owner: Connection, retention: Retention
) -> None:
    key = await die(world, await world.own_all(), world.now_us - 40 * DAY_US)
    await owner.execute(
        "UPDATE jobs SET state = 'finished', updated_at = now() - interval '40 days'"
    )
    assert await retention.remove_finished(7) == 0
    await retention.drop_old_days(Settings())
    assert await world.history.retry(world.caller, [key]) == set()


async def test_what_is_kept_has_the_columns_of_runs_and_attempts(owner: Connection) -> None:
    columns = (
        "SELECT attname, atttypid FROM pg_attribute"
        " WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    for kept, origin in (("kept_runs", "runs"), ("kept_attempts", "attempts")):
        assert await owner.fetch(columns, kept) == await owner.fetch(columns, origin)
