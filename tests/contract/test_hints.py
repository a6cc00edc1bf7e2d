"""Hints, on memory and on Postgres."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from msgspec import Raw
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.contract.conftest import ALL, MINUTE_US, TTL_US, World
from tests.postgres import Connect

from wheelsched.core.model import RunKey, RunState, Trigger, requested_due_us
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
        found = {hint.job_id for hint in self.hints if hint.job_id is not None}
        assert all(Hint(partition_of(job_id), job_id) in self.hints for job_id in found)
        self.hints.clear()
        return found

    async def freed(self) -> list[int]:
        assert self.source
        await self.source.confirm()
        found = sorted(hint.partition for hint in self.hints if hint.job_id is None)
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
    await world.jobs.edit(world.caller, changed, None, is_rescheduled=False)
    assert await ear.heard() == {job.job_id}
    await world.jobs.pause(world.caller, job.job_id)
    assert await ear.heard() == {job.job_id}
    await world.jobs.resume(world.caller, job.job_id, world.now_us)
    assert await ear.heard() == {job.job_id}
    await world.jobs.delete(world.caller, job.job_id)
    assert await ear.heard() == {job.job_id}


async def test_the_pauses_of_workers_that_are_gone_are_hinted_at(world: World, ear: Ear) -> None:
    due_us = world.now_us + 60 * MINUTE_US
    *gone, other = [await world.register(due_us, f"job {number}") for number in range(300)]
    lease = await world.own_all()
    assert await ear.heard() == set()
    await world.timers.pause_gone(lease, {job.job_id: 1 for job in gone})
    assert await ear.heard() == {job.job_id for job in gone}
    assert await world.due(other) == due_us


async def test_what_people_ask_of_runs_is_hinted_at(world: World, ear: Ear) -> None:
    job = await world.register(world.now_us + 60 * MINUTE_US)
    key = RunKey(job.job_id, requested_due_us(world.now_us))
    requested = RequestedRun(key=key, trigger=Trigger.MANUAL)
    await world.history.request(world.caller, [requested])
    assert await ear.heard() == {job.job_id}
    await world.history.cancel(world.caller, key)
    assert await ear.heard() == {job.job_id}
    await world.history.retry(world.caller, [key])
    assert await ear.heard() == {job.job_id}


async def test_what_a_worker_answers_is_hinted_at_unless_it_is_stale(
    world: World, ear: Ear
) -> None:
    job = await world.register(world.now_us + 60 * MINUTE_US)
    key, token = await world.arm(await world.own_all(), job, world.now_us + 60 * MINUTE_US)
    stale = world.settled(key, token - 1, RunState.SUCCEEDED)
    assert not await world.history.answer(world.caller, stale)
    assert await ear.heard() == set()
    assert await world.history.answer(world.caller, replace(stale, token=token))
    assert await ear.heard() == {job.job_id}


async def test_partitions_that_become_free_are_hinted_at(world: World, ear: Ear) -> None:
    first = await world.own_all()
    assert await ear.freed() == []
    released = await world.leases.release(first, [7, 9])
    assert await ear.freed() == [7, 9]
    await world.leases.release(first, [7, 9])
    assert await ear.freed() == []
    second = await world.leases.join(uuid4(), TTL_US)
    await world.leases.acquire(second, [7])
    await world.leases.renew(second, -1)
    assert await world.leases.take_over(released, second.shard_id, 1)
    assert await ear.freed() == [7]
    await world.leases.leave(released)
    assert await ear.freed() == [partition for partition in ALL if partition not in (7, 9)]


async def test_an_invalid_hint_is_logged_and_ignored(
    postgres_world: World, database: str, connect: Connect
) -> None:
    hints: list[Hint] = []
    source = await postgres_world.listen(hints.append)
    owner = await connect(database)
    payloads = ("", "256", "-1", "x", "7 x", f"7 {uuid4()} more", "7")
    with capture_logs() as logs:
        for payload in payloads:
            await owner.execute("SELECT pg_notify('wheelsched', $1)", payload)
        await source.confirm()
    assert hints == [Hint(7)]
    assert [line["event"] for line in logs] == ["hint.ignored"] * 6
    await source.close()


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
