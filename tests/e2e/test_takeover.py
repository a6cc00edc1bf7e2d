"""Takeovers between shard processes: a dead one is replaced at once, a living one never."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import asyncpg
import pytest
from tests.e2e.test_shards import assert_same_run, assert_unbroken
from tests.fleet import Fleet, fleet_on
from tests.postgres import temporary_server
from tests.proxy import Proxy
from tests.shard_process import Terms
from tests.waiting import until

from wheelsched.core.model import Job
from wheelsched.core.partition import partition_of
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.core.token import split_token
from wheelsched.store.schema.migrate import migrate
from wheelsched.values.duration import SECOND

pytestmark = pytest.mark.proof  # shards in processes of their own

BESIDE = OverlapPolicy(policy=OnOverlap.ALLOW)
# The terms of a lease, twelve or twenty times as long as usual. A lease is renewed five times in
# its term, so that one who does not notice the end of its connection renews too late.
LONG_LEASE = Terms(ttl_us=60 * SECOND)
LONG_ABSENCE = Terms(ttl_us=60 * SECOND, gone_us=10 * SECOND)


@pytest.fixture
async def fleet(database: str) -> AsyncIterator[Fleet]:
    async with fleet_on(database) as fleet:
        yield fleet


async def fill(fleet: Fleet) -> list[Job]:
    """Jobs that are due each second, and have begun."""
    jobs = await fleet.register(["* * * * * *"] * 30, overlap=BESIDE)
    await fleet.until_settled(jobs, 30 * 3)
    return jobs


async def start_two(fleet: Fleet) -> tuple[UUID, list[Job]]:
    """Two shards at work; gives the id of the first one, and its jobs."""
    await fleet.start("a")
    (first,) = (await fleet.store.leases.survey()).shards
    await fleet.start("b")
    jobs = await fill(fleet)
    partitions = (await fleet.store.leases.survey()).partitions
    owned = {each.partition for each in partitions if each.owner == first.shard_id}
    return first.shard_id, [job for job in jobs if partition_of(job.job_id) in owned]


async def backend_of(fleet: Fleet, shard_id: UUID) -> int:
    """The server process behind the lease connection of a shard, which must have its lease."""
    administrator = await asyncpg.connect(fleet.url)
    pid: int | None = await administrator.fetchval(
        "SELECT backend_pid FROM wheelsched.shards WHERE shard_id = $1", shard_id
    )
    await administrator.close()
    assert pid is not None, "it has lost its lease"
    return pid


async def until_renewed(fleet: Fleet, shard_id: UUID, before: int) -> None:
    """Waits until a shard has renewed its lease over another connection."""

    async def is_another() -> bool:
        return await backend_of(fleet, shard_id) != before

    await until(is_another)


async def end_backend(fleet: Fleet, shard_id: UUID) -> None:
    """Ends the server process behind the lease connection of a shard."""
    administrator = await asyncpg.connect(fleet.url)
    await administrator.execute(
        "SELECT pg_terminate_backend(backend_pid, 20000)"
        f" FROM wheelsched.shards WHERE shard_id = '{shard_id}'"
    )
    await administrator.close()


async def shards_of(fleet: Fleet) -> set[UUID]:
    return {shard.shard_id for shard in (await fleet.store.leases.survey()).shards}


async def check_all(fleet: Fleet, jobs: Sequence[Job]) -> None:
    """Every due time has a run; what arrived twice has the same key and another token."""
    await fleet.until_settled(jobs, len(await fleet.runs(jobs)))
    runs = await fleet.runs(jobs)
    for job in jobs:
        assert_unbroken([run for run in runs if run.job_id == job.job_id])
    for run_id in [run_id for run_id, count in fleet.arrivals.items() if count > 1]:
        assert_same_run(
            [got for got in fleet.received if got.headers["wheelsched-run-id"] == run_id]
        )


async def test_a_killed_shard_is_replaced_long_before_its_lease_expires(fleet: Fleet) -> None:
    fleet.terms = LONG_LEASE
    _, jobs = await start_two(fleet)
    killed_us = await fleet.now_us()
    await fleet.kill("a")
    await fleet.until_owned(1)
    taken_us = await fleet.now_us()
    assert taken_us - killed_us < 40 * SECOND  # the lease has at least 48 s left
    await check_all(fleet, jobs)


async def test_a_shard_whose_backend_is_ended_keeps_its_lease(fleet: Fleet) -> None:
    fleet.terms = LONG_ABSENCE
    shard_id, jobs = await start_two(fleet)
    before = await shards_of(fleet)
    for _ in range(5):
        backend = await backend_of(fleet, shard_id)
        await end_backend(fleet, shard_id)
        await until_renewed(fleet, shard_id, backend)
    assert await shards_of(fleet) == before
    await check_all(fleet, jobs)
    assert set(fleet.arrivals.values()) == {1}


async def test_a_shard_whose_connections_are_cut_keeps_its_lease(database: str) -> None:
    options = parse_qs(urlsplit(database).query)
    async with (
        Proxy(f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}") as proxy,
        fleet_on(database) as fleet,
    ):
        fleet.terms = LONG_ABSENCE
        await fleet.start("a")
        first = await shards_of(fleet)
        fleet.url = proxy.url(urlsplit(database).path[1:])
        await fleet.start("b")
        fleet.url = database
        jobs = await fill(fleet)
        before = await shards_of(fleet)
        (shard_id,) = before - first
        for _ in range(5):
            backend = await backend_of(fleet, shard_id)
            proxy.cut()
            await until_renewed(fleet, shard_id, backend)
        assert await shards_of(fleet) == before
        await check_all(fleet, jobs)
        assert set(fleet.arrivals.values()) == {1}


async def test_a_frozen_shard_that_is_taken_over_wakes_and_sends_nothing(fleet: Fleet) -> None:
    """Its backend is ended, and it cannot renew: two faults at once. Its armed runs are sent by
    the other shard, and not again when it wakes, long before its trust would have expired."""
    shard_id, jobs = await start_two(fleet)
    fleet.signal("a", signal.SIGSTOP)
    try:
        await end_backend(fleet, shard_id)
        await fleet.until_owned(1)
    finally:
        fleet.signal("a", signal.SIGCONT)
    await fleet.until_owned(2)
    assert shard_id not in await shards_of(fleet)
    await check_all(fleet, jobs)


async def test_a_restart_of_the_server_costs_no_lease_and_no_run() -> None:
    """All connections end at once. The shards take their partitions again, with new epochs."""
    with temporary_server(fsync="on") as server:
        connection = await asyncpg.connect(server.url)
        await migrate(connection)
        await connection.execute(
            "SELECT wheelsched.make_days("
            "ARRAY(SELECT current_date + n FROM generate_series(-1, 2) n))"
        )
        await connection.close()
        async with fleet_on(server.url) as fleet:
            fleet.terms = LONG_LEASE
            _, jobs = await start_two(fleet)
            before = await shards_of(fleet)
            latest = max(tokens(fleet))
            pid = (server.data_directory / "postmaster.pid").read_text().splitlines()[0]
            os.kill(int(pid), signal.SIGQUIT)  # the supervisor starts it again

            async def is_firing() -> bool:
                return split_token(max(tokens(fleet))).epoch > split_token(latest).epoch

            await until(is_firing)
            assert await shards_of(fleet) == before
            await check_all(fleet, jobs)
            assert set(fleet.arrivals.values()) == {1}


def tokens(fleet: Fleet) -> list[int]:
    return [int(got.headers["wheelsched-fencing-token"]) for got in fleet.received]
