"""Hints, on a real Postgres."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.contract.conftest import MINUTE_US, World
from tests.postgres import Connect

from wheelsched.config import StoreConfig
from wheelsched.core.model import Job, RunKey, Trigger, requested_due_us
from wheelsched.core.partition import partition_of
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Hint, RequestedRun
from wheelsched.store.database import Database
from wheelsched.store.hints import PostgresHints
from wheelsched.store.postgres import PostgresStore


class Listening:
    """A world that can be asked what its hints were."""

    def __init__(self, world: World, source: PostgresHints, heard: list[Hint]) -> None:
        self.world, self.source, self._heard = world, source, heard

    async def heard(self) -> set[UUID]:
        await self.source.confirm()
        found = {hint.job_id for hint in self._heard}
        assert all(hint.partition == partition_of(hint.job_id) for hint in self._heard)
        self._heard.clear()
        return found


@pytest.fixture
async def listening(database: str, connect: Connect) -> AsyncIterator[Listening]:
    tenant_id = uuid4()
    owner = await connect(database)
    await owner.execute("INSERT INTO tenants (tenant_id, name) VALUES ($1, 'one')", tenant_id)
    heard: list[Hint] = []
    shard = StoreConfig(url=database, role="shard")
    async with (
        await Database.open(shard) as shard_database,
        await Database.open(StoreConfig(url=database, role="api")) as api_database,
        await PostgresHints.open(shard, heard.append) as source,
    ):
        stores = PostgresStore(shard_database), PostgresStore(api_database)
        yield Listening(World(*stores, tenant_id, uuid4()), source, heard)


async def test_a_job_due_within_the_horizon_is_hinted_at_and_a_later_one_is_not(
    listening: Listening,
) -> None:
    soon = await listening.world.register(listening.world.now_us + 50_000, "soon")
    await listening.world.register(listening.world.now_us + 60 * MINUTE_US, "later")
    assert await listening.heard() == {soon.job_id}


async def test_every_change_of_a_job_is_hinted_at(listening: Listening) -> None:
    world = listening.world
    job = await world.register(world.now_us + 60 * MINUTE_US)
    assert await listening.heard() == set()

    async def edit(job: Job) -> None:
        changed = replace(job, version=2, payload=Raw(b"2"))
        await world.jobs.edit(world.tenant_id, changed, None, is_rescheduled=False)

    await edit(job)
    assert await listening.heard() == {job.job_id}
    await world.jobs.pause(world.tenant_id, job.job_id)
    assert await listening.heard() == {job.job_id}
    await world.jobs.resume(world.tenant_id, job.job_id, world.now_us)
    assert await listening.heard() == {job.job_id}
    await world.jobs.delete(world.tenant_id, job.job_id)
    assert await listening.heard() == {job.job_id}


async def test_what_people_ask_of_runs_is_hinted_at(listening: Listening) -> None:
    world = listening.world
    job = await world.register(world.now_us + 60 * MINUTE_US)
    key = RunKey(job.job_id, requested_due_us(world.now_us))
    requested = RequestedRun(key=key, trigger=Trigger.MANUAL)
    await world.history.request(world.tenant_id, [requested])
    assert await listening.heard() == {job.job_id}
    await world.history.cancel(world.tenant_id, key)
    assert await listening.heard() == {job.job_id}
    await world.history.retry(world.tenant_id, [key])
    assert await listening.heard() == {job.job_id}


async def test_confirming_has_every_hint_that_committed_before(listening: Listening) -> None:
    for number in range(50):
        job = await listening.world.register(listening.world.now_us, f"job {number}")
        assert await listening.heard() == {job.job_id}


async def test_a_source_that_hears_no_more_says_so(
    listening: Listening, database: str, connect: Connect
) -> None:
    owner = await connect(database)
    await owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'wheelsched-hints'"
    )
    with pytest.raises(StoreUnavailable):
        await listening.source.confirm()
    with pytest.raises(StoreUnavailable):
        await listening.source.confirm()
