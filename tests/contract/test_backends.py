"""The backends of lease connections, on memory and on Postgres."""

import asyncio
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from tests.contract.conftest import ALL, TTL_US, Process, World

from wheelsched.errors import DatabaseWentBack, LeaseLost
from wheelsched.ports import BackendView, Lease, LeaseStore


async def look(leases: LeaseStore) -> dict[UUID, BackendView]:
    return {view.shard_id: view for view in await leases.watch_backends()}


async def two_shards(world: World) -> tuple[Lease, Process, Lease]:
    """A shard of the world, and one in another process that owns everything."""
    lease = await world.leases.join(uuid4(), TTL_US)
    other = await world.start_process()
    others = await other.leases.join(uuid4(), TTL_US)
    await other.leases.acquire(others, ALL)
    return lease, other, others


async def test_the_backend_of_each_shard_is_published_and_alive(world: World) -> None:
    lease, _, others = await two_shards(world)
    views = await look(world.leases)
    assert views.keys() == {lease.shard_id, others.shard_id}
    assert all(view.is_alive for view in views.values())
    assert len({view.backend.pid for view in views.values()}) == 2
    assert len({view.backend.server_started_us for view in views.values()}) == 1


async def test_renewing_publishes_the_same_backend_and_counts(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US)
    before = (await look(world.leases))[lease.shard_id]
    assert before.renewals == 0
    renewal = await world.leases.renew(lease, TTL_US)
    after = (await look(world.leases))[lease.shard_id]
    assert (renewal.renewals, renewal.fence) == (1, lease.fence)
    assert renewal.server_started_us == before.backend.server_started_us
    assert after == replace(before, renewals=1)


async def test_a_dead_process_is_gone_and_taken_over(world: World) -> None:
    lease, other, others = await two_shards(world)
    await other.die()
    gone = (await look(world.leases))[others.shard_id]
    async with asyncio.timeout(10):
        while gone.is_alive:
            gone = (await look(world.leases))[others.shard_id]
    assert await world.leases.take_over_gone(lease, gone)
    assert not await world.leases.take_over_gone(lease, gone)
    survey = await world.leases.survey()
    assert [shard.shard_id for shard in survey.shards] == [lease.shard_id]
    assert {each.owner for each in survey.partitions} == {None}
    with pytest.raises(LeaseLost):
        await other.leases.renew(others, TTL_US)


async def test_a_living_backend_is_not_taken_over(world: World) -> None:
    lease, other, others = await two_shards(world)
    seen = (await look(world.leases))[others.shard_id]
    assert not await world.leases.take_over_gone(lease, seen)
    await other.leases.renew(others, TTL_US)


async def test_a_shard_that_renewed_over_a_new_connection_is_not_taken_over(world: World) -> None:
    lease, other, others = await two_shards(world)
    before = (await look(world.leases))[others.shard_id]
    await world.end_backend(before.backend)
    async with asyncio.timeout(10):
        await other.leases.wait_disconnected()
    await other.leases.renew(others, TTL_US)
    assert not await world.leases.take_over_gone(lease, before)
    after = (await look(world.leases))[others.shard_id]
    assert after.is_alive
    assert after.backend.pid != before.backend.pid


async def test_a_backend_of_another_lifetime_of_the_server_is_not_taken_over(world: World) -> None:
    lease, other, others = await two_shards(world)
    seen = (await look(world.leases))[others.shard_id]
    await other.die()
    earlier = replace(seen.backend, server_started_us=seen.backend.server_started_us - 1)
    assert not await world.leases.take_over_gone(lease, replace(seen, backend=earlier))


async def test_a_takeover_of_the_own_backend_or_without_a_lease_is_refused(world: World) -> None:
    lease, other, others = await two_shards(world)
    seen = (await look(world.leases))[others.shard_id]
    await other.die()
    async with asyncio.timeout(10):
        while (await look(world.leases))[others.shard_id].is_alive:
            pass
    assert not await world.leases.take_over_gone(Lease(uuid4(), 1), seen)
    assert not await world.leases.take_over_gone(others, seen)
    assert await world.leases.take_over_gone(lease, seen)


async def test_a_process_sees_the_end_of_its_lease_connection(world: World) -> None:
    _, other, others = await two_shards(world)
    assert other.leases.is_connected()
    await world.end_backend((await look(world.leases))[others.shard_id].backend)
    async with asyncio.timeout(10):
        await other.leases.wait_disconnected()
    assert not other.leases.is_connected()
    assert (await other.leases.renew(others, TTL_US)).renewals == 1
    assert other.leases.is_connected()


async def test_a_process_that_never_renewed_is_not_connected(world: World) -> None:
    other = await world.start_process()
    assert not other.leases.is_connected()
    await other.leases.wait_disconnected()


async def test_a_lease_from_the_past_is_not_renewed(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US)
    await world.leases.renew(lease, TTL_US, 0)
    assert (await world.leases.renew(lease, TTL_US, 1)).renewals == 2
    assert (await world.leases.renew(lease, TTL_US, 9)).renewals == 2
    assert (await world.leases.survey()).shards[0].renewals == 2


async def test_a_fence_that_is_lower_than_known_is_from_the_past(world: World) -> None:
    lease = await world.own_all()
    later = Lease(lease.shard_id, lease.fence + 1)
    with pytest.raises(DatabaseWentBack):
        await world.leases.acquire(later, [7])
    with pytest.raises(DatabaseWentBack):
        await world.leases.release(later, [7])


async def test_a_death_certificate_ends_the_lease_once(world: World) -> None:
    _, other, others = await two_shards(world)
    assert await world.leases.certify_death(others.shard_id)
    assert not await world.leases.certify_death(others.shard_id)
    assert {each.owner for each in (await world.leases.survey()).partitions} == {None}
    with pytest.raises(LeaseLost):
        await other.leases.renew(others, TTL_US)


async def test_a_shard_tells_that_the_database_went_back(world: World) -> None:
    await world.leases.join(uuid4(), TTL_US, None, world.now_us)
    assert [each.went_back_at_us for each in (await world.leases.survey()).shards] == [world.now_us]
