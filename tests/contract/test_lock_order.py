"""On Postgres, locks are taken in one order, so that no two statements wait for each other.

Each test holds the lock that comes first, sees the statement wait for it, and takes the locks that
come later: a statement that had taken one of those already would be found out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from tests.contract.conftest import ALL, MINUTE_US, World
from tests.postgres import Connect
from tests.waiting import until

from wheelsched.core.model import JobState, RunState
from wheelsched.errors import StoreContention
from wheelsched.ports import Registration
from wheelsched.store.connections.connection import Connection
from wheelsched.store.for_api import registration

WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
Wait = Callable[["asyncio.Task[object]"], Awaitable[None]]


@pytest.fixture
def world(postgres_world: World) -> World:
    return postgres_world


@pytest.fixture
async def holder(database: str, connect: Connect) -> Connection:
    return await connect(database, lock_timeout="1ms")


@pytest.fixture
async def wait(database: str, connect: Connect) -> Wait:
    observer = await connect(database)

    async def until_waiting(task: "asyncio.Task[object]") -> None:
        async def is_waiting() -> bool:
            if task.done():
                pytest.fail(f"it did not wait: {task.result()}")
            return bool(await observer.fetchval(WAITING))

        await until(is_waiting)

    return until_waiting


async def test_jobs_are_registered_by_name(world: World, holder: Connection, wait: Wait) -> None:
    insert = (
        "INSERT INTO jobs (job_id, tenant_id, partition, name, state, definition, created_at,"
        " updated_at) VALUES (gen_random_uuid(), $1, 0, $2, 'active', '{}', now(), now())"
    )
    jobs = [world.job(name, job_id=UUID(int=place)) for place, name in enumerate("cba", 1)]
    registrations = [Registration(job, world.now_us) for job in jobs]
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute(insert, world.caller.tenant_id, "a")
    registering = asyncio.create_task(world.jobs.register(world.caller, registrations))
    await wait(registering)
    for name in "bc":
        await holder.execute(insert, world.caller.tenant_id, name)
    await transaction.rollback()
    assert await registering == set()


@pytest.mark.parametrize("failures", [3, 4])
async def test_a_registration_that_was_given_up_is_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    add, left = registration._add, [None] * failures

    async def contended(*arguments: Any) -> None:
        if left:
            left.pop()
            raise StoreContention
        await add(*arguments)

    monkeypatch.setattr(registration, "_add", contended)
    job = world.job()
    registering = world.jobs.register(world.caller, [Registration(job, world.now_us)])
    if failures < registration.MAX_ATTEMPTS:
        assert await registering == set()
    else:
        with pytest.raises(StoreContention):
            await registering


async def test_a_shard_does_not_wait_for_a_locked_job(world: World, holder: Connection) -> None:
    """An application may hold the lock for as long as its transaction lasts."""
    job = await world.register(world.now_us)
    lease = await world.own_all()
    await world.timers.arm(lease, [world.claim(job, world.now_us, next_due_us=None)])
    async with holder.transaction():
        await holder.execute("SELECT FROM jobs WHERE job_id = $1 FOR UPDATE", job.job_id)
        await holder.execute("SELECT FROM timers WHERE job_id = $1 FOR UPDATE", job.job_id)
        await world.timers.finish(lease, [job.job_id])
        await world.timers.pause_gone(lease, {job.job_id: job.version})
    assert await world.job_state(job) is JobState.ACTIVE
    await world.timers.finish(lease, [job.job_id])
    assert await world.job_state(job) is JobState.FINISHED


async def test_a_run_is_cancelled_before_its_retry(
    world: World, holder: Connection, wait: Wait
) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    retry_at_us = world.now_us + MINUTE_US
    await world.runs.settle([world.settled(key, token, RunState.RETRYING, retry_at_us=retry_at_us)])
    async with holder.transaction():
        await holder.execute("SELECT FROM runs WHERE job_id = $1 FOR UPDATE", job.job_id)
        deleting = asyncio.create_task(world.jobs.delete(world.caller, job.job_id))
        await wait(deleting)
        await holder.execute("SELECT FROM retries WHERE job_id = $1 FOR UPDATE", job.job_id)
    await deleting
    assert await world.state(key) is RunState.CANCELLED


async def test_marks_are_lowered_by_partition(world: World, holder: Connection, wait: Wait) -> None:
    jobs = [await world.register(world.now_us, f"job {number}") for number in range(20)]
    lease = await world.own_all()
    await world.timers.advance(lease, world.marks(ALL, world.now_us + 1))
    lock = (
        "SELECT partition FROM partitions WHERE live_since > '-infinity' AND partition IN"
        " (SELECT partition FROM timers) ORDER BY partition LIMIT $1 FOR UPDATE"
    )
    async with holder.transaction():
        await holder.execute(lock, 1)
        claims = [world.claim(job, world.now_us) for job in jobs]
        arming = asyncio.create_task(world.timers.arm(lease, claims))
        await wait(arming)
        await holder.execute(lock, len(jobs))
    assert await arming == set()
