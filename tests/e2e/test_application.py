"""An application that schedules in its own transactions, and shard processes that fire."""

import signal
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest
from msgspec import Struct
from tests.fleet import Fleet, fleet_on
from tests.postgres import Connect
from tests.waiting import until

from wheelsched.core.model import Draft, JobState, Run, RunState
from wheelsched.errors import JobNotFound
from wheelsched.store.connections.connection import Connection
from wheelsched.store.for_api.grants import Grants
from wheelsched.values.duration import MILLISECOND, SECOND

pytestmark = pytest.mark.proof  # shards in processes of their own

COUNT = 200


class Application(Struct, frozen=True, eq=False):
    """A program with an order to keep, and reminders to schedule for it."""

    fleet: Fleet
    connection: Connection

    async def schedule(self, name: str, schedule: str) -> UUID:
        job_id: UUID = await self.connection.fetchval(
            "SELECT wheelsched.schedule($1, $2, $3)", name, schedule, self.fleet.worker.url
        )
        return job_id

    async def schedule_in(self, name: str, delay_us: int) -> UUID:
        job_id: UUID = await self.connection.fetchval(
            "SELECT wheelsched.schedule_at($1, clock_timestamp() + $2 * interval '1 us', $3)",
            name,
            float(delay_us),
            self.fleet.worker.url,
        )
        return job_id

    async def cancel(self, name: str) -> bool | None:
        was_in_time: bool | None = await self.connection.fetchval(
            "SELECT wheelsched.cancel($1)", name
        )
        return was_in_time

    async def runs(self, job_id: UUID) -> list[Run]:
        return await self.fleet.store.history.list_runs(self.fleet.caller, job_id, 99)

    async def until_succeeded(self, *job_ids: UUID) -> None:
        async def all_have() -> bool:
            runs = [await self.runs(job_id) for job_id in job_ids]
            return all(any(run.state is RunState.SUCCEEDED for run in each) for each in runs)

        await until(all_have)

    async def until_state(self, job_id: UUID, state: JobState) -> None:
        async def is_so() -> bool:
            return (await self.fleet.store.jobs.read(self.fleet.caller, job_id)).state is state

        await until(is_so)


@pytest.fixture
async def application(database: str, connect: Connect) -> AsyncIterator[Application]:
    async with fleet_on(database) as fleet:
        role = f"shop_{fleet.caller.tenant_id.hex}"
        owner = await connect(database)
        await owner.execute(f"CREATE ROLE {role}")
        await owner.execute("CREATE TABLE public.orders (number integer PRIMARY KEY)")
        await owner.execute(f"GRANT ALL ON public.orders TO {role}")
        await Grants(fleet.database).grant("test", fleet.caller.tenant_id, role)
        connection = await connect(database, role=role, search_path="public")
        await fleet.start("a")
        yield Application(fleet, connection)


async def test_what_is_committed_with_the_order_fires_at_its_time(
    application: Application,
) -> None:
    async with application.connection.transaction():
        await application.connection.execute("INSERT INTO orders VALUES (1)")
        soon = await application.schedule_in("soon", 50 * MILLISECOND)
        later = await application.schedule_in("later", SECOND)
    await application.until_succeeded(soon, later)
    for job_id in (soon, later):
        (run,) = await application.runs(job_id)
        assert run.lateness_us is not None
        assert run.started_at_us is not None
        assert run.started_at_us >= run.due_us
        assert application.fleet.arrivals[run.run_id] == 1
    await application.until_state(soon, JobState.FINISHED)
    assert await application.cancel("soon") is False


async def test_a_job_rolled_back_with_its_order_never_fires(application: Application) -> None:
    connection = application.connection
    await connection.execute("INSERT INTO orders VALUES (1)")
    transaction = connection.transaction()
    await transaction.start()
    await application.schedule_in("never", 100 * MILLISECOND)
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute("INSERT INTO orders VALUES (1)")
    await transaction.rollback()
    fence = await application.schedule_in("after it", SECOND)
    await application.until_succeeded(fence)
    assert {key.split("-")[0] for key in application.fleet.arrivals} == {fence.hex}


async def test_hundreds_of_one_transaction_arrive_once_each(application: Application) -> None:
    async with application.connection.transaction():
        job_ids = [
            await application.schedule_in(f"job {number}", 2 * SECOND) for number in range(COUNT)
        ]
    await application.fleet.until_arrived(COUNT)
    await application.until_succeeded(*job_ids)
    assert set(application.fleet.arrivals.values()) == {1}


async def test_what_recurs_is_planned_at_once(application: Application) -> None:
    job_id = await application.schedule("every second", "* * * * * *")
    await application.fleet.until_arrived(3)
    await application.until_state(job_id, JobState.ACTIVE)
    async with application.connection.transaction():
        assert await application.cancel("every second") is not None
        await application.schedule("every second", "0 0 1 1 *")
    with pytest.raises(JobNotFound):
        await application.fleet.store.jobs.read(application.fleet.caller, job_id)


async def test_a_job_cancelled_in_time_does_not_fire(application: Application) -> None:
    cancelled = await application.schedule_in("cancelled", 3 * SECOND)
    kept = await application.schedule_in("kept", 3 * SECOND)
    transaction = application.connection.transaction()
    await transaction.start()
    assert await application.cancel("kept") is not None
    await transaction.rollback()
    came_us = await application.fleet.now_us()
    was_in_time = await application.cancel("cancelled")
    await application.until_succeeded(kept)
    (run,) = await application.runs(kept)
    if was_in_time and came_us < run.due_us - 2 * SECOND:
        assert {key.split("-")[0] for key in application.fleet.arrivals} == {kept.hex}
        assert all(run.state is RunState.SKIPPED for run in await application.runs(cancelled))


async def test_an_invalid_draft_is_refused_and_the_shard_goes_on(
    application: Application,
) -> None:
    bad = await application.schedule("bad", "61 * * * *")
    good = await application.schedule_in("good", SECOND)
    await application.until_state(bad, JobState.REFUSED)
    refused = await application.fleet.store.jobs.read(application.fleet.caller, bad)
    assert isinstance(refused, Draft)
    assert "61" in str(refused.error)
    await application.until_succeeded(good)


async def test_a_shard_that_starts_later_plans_what_it_finds(application: Application) -> None:
    application.fleet.signal("a", signal.SIGTERM)
    await application.fleet.ended("a")
    job_id = await application.schedule_in("waits", SECOND)
    await application.fleet.start("b")
    await application.until_succeeded(job_id)
