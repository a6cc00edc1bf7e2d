"""Hints, on memory and on Postgres."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.contract.conftest import MINUTE_US, World
from tests.postgres import Connect

from wheelsched.core.model import RunKey, Trigger, requested_due_us
from wheelsched.core.partition import partition_of
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Hint, HintSource, RequestedRun


class Ear:
    """What was heard since the last time that it was asked."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []
        self.source: HintSource | None = None

    async def heard(self) -> set[UUID]:
        assert self.source
        await self.source.confirm()
        assert all(hint.partition == partition_of(hint.job_id) for hint in self.hints)
        found = {hint.job_id for hint in self.hints}
        self.hints.clear()
        return found


@pytest.fixture
async def ear(world: World) -> AsyncIterator[Ear]:
    ear = Ear()
    ear.source = await world.listen(ear.hints.append)
    yield ear
    await ear.source.close()


async def test_a_job_due_within_the_horizon_is_hinted_at_and_a_later_one_is_not(
    world: World, ear: Ear
) -> None:
    soon = await world.register(world.now_us + 50_000, "soon")
    await world.register(world.now_us + 60 * MINUTE_US, "later")
    assert await ear.heard() == {soon.job_id}


async def test_every_change_of_a_job_is_hinted_at(world: World, ear: Ear) -> None:
    job = await world.register(world.now_us + 60 * MINUTE_US)
    assert await ear.heard() == set()
    changed = replace(job, version=2, payload=Raw(b"2"))
    await world.jobs.edit(world.tenant_id, changed, None, is_rescheduled=False)
    assert await ear.heard() == {job.job_id}
    await world.jobs.pause(world.tenant_id, job.job_id)
    assert await ear.heard() == {job.job_id}
    await world.jobs.resume(world.tenant_id, job.job_id, world.now_us)
    assert await ear.heard() == {job.job_id}
    await world.jobs.delete(world.tenant_id, job.job_id)
    assert await ear.heard() == {job.job_id}


async def test_what_people_ask_of_runs_is_hinted_at(world: World, ear: Ear) -> None:
    job = await world.register(world.now_us + 60 * MINUTE_US)
    key = RunKey(job.job_id, requested_due_us(world.now_us))
    requested = RequestedRun(key=key, trigger=Trigger.MANUAL)
    await world.history.request(world.tenant_id, [requested])
    assert await ear.heard() == {job.job_id}
    await world.history.cancel(world.tenant_id, key)
    assert await ear.heard() == {job.job_id}
    await world.history.retry(world.tenant_id, [key])
    assert await ear.heard() == {job.job_id}


async def test_confirming_has_every_hint_that_committed_before(world: World, ear: Ear) -> None:
    for number in range(50):
        job = await world.register(world.now_us, f"job {number}")
        assert await ear.heard() == {job.job_id}


async def test_a_closed_source_hears_nothing_and_says_so(world: World, ear: Ear) -> None:
    assert ear.source
    await ear.source.close()
    await world.register(world.now_us)
    with pytest.raises(StoreUnavailable):
        await ear.source.confirm()
    assert ear.hints == []


async def test_a_source_whose_connection_was_cut_says_so(
    postgres_world: World, database: str, connect: Connect
) -> None:
    source = await postgres_world.listen(lambda _: None)
    owner = await connect(database)
    await owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'wheelsched-hints'"
    )
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await source.confirm()
    await source.close()
