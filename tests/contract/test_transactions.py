"""Jobs of an application's transaction: there with its commit, and never without it."""

import time

import pytest
from tests.contract.conftest import World
from tests.contract.test_plans import document, draft_of, plan_for, planned, unplanned

from wheelsched.core.model import JobState
from wheelsched.errors import JobNotFound
from wheelsched.ports import Hint, JobFilter


async def test_a_rolled_back_job_never_existed(world: World) -> None:
    lease = await world.own_all()
    kept = await planned(world, lease, "kept")
    heard: list[Hint] = []
    source = await world.listen(heard.append)
    transaction = await world.application.begin(world.caller)
    job_id = await transaction.schedule(document("new"))
    assert await transaction.cancel("kept") is True
    await transaction.rollback()
    await source.confirm()
    await source.close()
    with pytest.raises(JobNotFound):
        await world.jobs.read(world.caller, job_id)
    assert await world.jobs.list_jobs(world.caller, JobFilter(), 9) == [kept]
    assert (await unplanned(world), heard) == ([], [])


async def test_nothing_is_seen_before_the_commit(world: World) -> None:
    transaction = await world.application.begin(world.caller)
    job_id = await transaction.schedule(document())
    assert await unplanned(world) == []
    await transaction.commit()
    assert [entry.job_id for entry in await unplanned(world)] == [job_id]


async def test_a_draft_is_as_old_as_the_call(world: World) -> None:
    transaction = await world.application.begin(world.caller)
    job_id = await transaction.schedule(document())
    called_us = time.time_ns() // 1_000
    while time.time_ns() // 1_000 <= called_us + 2_000:
        await world.plans.list_unplanned([0], 1)
    await transaction.commit()
    assert (await draft_of(world, job_id)).created_at_us <= called_us


async def test_a_draft_that_a_transaction_is_about_to_remove_is_passed_by(world: World) -> None:
    lease = await world.own_all()
    job_id = await world.application.schedule(world.caller, document())
    transaction = await world.application.begin(world.caller)
    assert await transaction.cancel(job_id) is True
    plan = await plan_for(world, job_id)
    result = await world.plans.plan(lease, [plan])
    assert (result.accepted, result.refused) == (frozenset(), frozenset())
    await transaction.rollback()
    assert (await world.plans.plan(lease, [plan])).accepted == {job_id}


async def test_to_replace_is_to_cancel_and_to_schedule_another(world: World) -> None:
    lease = await world.own_all()
    before = await planned(world, lease)
    transaction = await world.application.begin(world.caller)
    job_id = await transaction.schedule(document(), "replace")
    await transaction.commit()
    assert job_id != before.job_id
    with pytest.raises(JobNotFound):
        await world.jobs.read(world.caller, before.job_id)
    assert (await draft_of(world, job_id)).state is JobState.UNPLANNED
    entries = {entry.job_id: entry for entry in await unplanned(world)}
    assert entries.keys() == {before.job_id, job_id}
    assert entries[before.job_id].draft is None
    await world.plans.clear(lease, [entries[before.job_id].number])
    assert await world.due(before) is None


async def test_what_is_kept_is_the_job_that_was_there(world: World) -> None:
    job_id = await world.application.schedule(world.caller, document())
    transaction = await world.application.begin(world.caller)
    assert await transaction.schedule(document(), "keep") == job_id
    await transaction.commit()
    assert len(await unplanned(world)) == 1


async def test_a_transaction_sees_what_it_has_done(world: World) -> None:
    transaction = await world.application.begin(world.caller)
    first = await transaction.schedule(document())
    assert await transaction.cancel("report") is True
    assert await transaction.cancel("report") is None
    second = await transaction.schedule(document())
    await transaction.commit()
    assert [job.job_id for job in await world.jobs.list_jobs(world.caller, JobFilter(), 9)] == [
        second
    ]
    assert first != second
