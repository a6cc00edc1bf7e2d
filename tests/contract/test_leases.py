"""Leases and partitions, on memory and on Postgres."""

from itertools import count
from time import monotonic_ns
from uuid import uuid4

import pytest
from tests.contract.conftest import ALL, TTL_US, World

from wheelsched.core.model import BreakerKind
from wheelsched.errors import FenceRaised, LeaseLost
from wheelsched.ports import Lease, OpenBreaker


async def test_a_new_shard_owns_nothing_until_it_acquires(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US, "host:1")
    survey = await world.leases.survey()
    assert [view.shard_id for view in survey.shards] == [lease.shard_id]
    assert survey.shards[0].address == "host:1"
    assert not survey.shards[0].is_expired
    assert len(survey.partitions) == 256
    assert all(row.owner is None for row in survey.partitions)


async def test_joining_again_is_the_same_lease(world: World) -> None:
    shard_id = uuid4()
    assert await world.leases.join(shard_id, TTL_US) == await world.leases.join(shard_id, TTL_US)


async def test_acquiring_takes_what_is_free_with_a_new_epoch(world: World) -> None:
    first, second = [await world.leases.join(uuid4(), TTL_US) for _ in range(2)]
    mine = await world.leases.acquire(first, [1, 2])
    assert [row.partition for row in mine] == [1, 2]
    theirs = await world.leases.acquire(second, [2, 3])
    assert [row.partition for row in theirs] == [3]


async def test_acquiring_again_keeps_the_epoch(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US)
    first = await world.leases.acquire(lease, [7])
    assert await world.leases.acquire(lease, [7]) == first


async def test_an_epoch_is_at_least_the_seconds_of_the_clock_since_2026(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US)
    before_s = world.now_us // 1_000_000
    (owned,) = await world.leases.acquire(lease, [7])
    assert 0 <= owned.epoch + 1_767_225_600 - before_s < 60


async def test_an_epoch_is_greater_than_every_known_one(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US)
    known = 2_000_000_000
    (owned,) = await world.leases.acquire(lease, [7], {7: known, 8: known + 9})
    assert owned.epoch == known + 1
    assert await world.leases.acquire(lease, [7], {7: known}) == [owned]
    (later,) = await world.leases.acquire(lease, [7], {7: owned.epoch})
    assert later.epoch == owned.epoch + 1
    assert (await world.leases.survey()).partitions[7].epoch == later.epoch


async def test_who_acquires_a_partition_learns_which_epoch_was_released(world: World) -> None:
    first, second = [await world.leases.join(uuid4(), TTL_US) for _ in range(2)]
    (owned,) = await world.leases.acquire(first, [7])
    assert (owned.released_epoch, owned.released_at_us) == (0, None)
    before = await world.leases.read_clock(monotonic_ns)
    await world.leases.release(first, [7])
    after = await world.leases.read_clock(monotonic_ns)
    (taken,) = await world.leases.acquire(second, [7])
    assert taken.epoch > owned.epoch
    assert taken.released_epoch == owned.epoch
    assert taken.released_at_us is not None
    assert before.database_us <= taken.released_at_us <= after.database_us


async def test_a_lease_that_ends_with_its_partitions_releases_none(world: World) -> None:
    first, second = [await world.leases.join(uuid4(), TTL_US) for _ in range(2)]
    (owned,) = await world.leases.acquire(first, [7])
    await world.leases.leave(first)
    (taken,) = await world.leases.acquire(second, [7])
    assert taken.epoch > owned.epoch
    assert taken.released_epoch == 0


async def test_a_released_partition_goes_to_the_next_with_a_higher_epoch(world: World) -> None:
    first = await world.own_all()
    second = await world.leases.join(uuid4(), TTL_US)
    before = (await world.leases.survey()).partitions[7].epoch
    await world.leases.release(first, [7])
    (taken,) = await world.leases.acquire(second, ALL)
    assert taken.partition == 7
    assert taken.epoch > before


async def test_releasing_raises_the_fence_once_even_when_sent_again(world: World) -> None:
    lease = await world.own_all()
    released = await world.leases.release(lease, [7])
    assert await world.leases.release(lease, [7]) == released
    assert released.fence == lease.fence + 1
    with pytest.raises(FenceRaised):
        await world.leases.acquire(lease, [7])
    assert len(await world.leases.acquire(released, [7])) == 1


async def test_a_release_that_is_sent_again_frees_nothing_that_was_taken_back(
    world: World,
) -> None:
    lease = await world.own_all()
    released = await world.leases.release(lease, [7])
    await world.leases.acquire(released, [7])
    assert await world.leases.release(lease, [7]) == released
    survey = await world.leases.survey()
    assert survey.partitions[7].owner == lease.shard_id


async def test_joining_again_tells_the_new_address(world: World) -> None:
    shard_id = uuid4()
    await world.leases.join(shard_id, TTL_US, "host:1")
    await world.leases.join(shard_id, TTL_US, "host:2")
    assert (await world.leases.survey()).shards[0].address == "host:2"


async def test_a_lease_that_was_released_twice_since_is_refused(world: World) -> None:
    lease = await world.own_all()
    later = await world.leases.release(await world.leases.release(lease, [1]), [2])
    assert later.fence == lease.fence + 2
    with pytest.raises(FenceRaised):
        await world.leases.release(lease, [3])


async def test_the_clock_is_the_databases_and_goes_on(world: World) -> None:
    instants_ns = count()
    first, second = [await world.leases.read_clock(lambda: next(instants_ns)) for _ in range(2)]
    assert world.now_us <= first.database_us <= second.database_us < world.now_us + 60_000_000
    assert [first.sent_ns, first.received_ns, second.sent_ns] == [0, 1, 2]


async def test_leaving_frees_everything(world: World) -> None:
    lease = await world.own_all()
    await world.leases.leave(lease)
    await world.leases.leave(lease)
    survey = await world.leases.survey()
    assert survey.shards == ()
    assert all(row.owner is None for row in survey.partitions)
    with pytest.raises(LeaseLost):
        await world.leases.renew(lease, TTL_US)


async def test_a_live_lease_is_not_taken_over(world: World) -> None:
    first = await world.own_all()
    second = await world.leases.join(uuid4(), TTL_US)
    assert not await world.leases.take_over(second, first.shard_id, 0)
    await world.leases.renew(first, TTL_US)


async def test_an_expired_lease_that_was_renewed_since_is_not_taken_over(world: World) -> None:
    first = await world.leases.join(uuid4(), TTL_US)
    second = await world.leases.join(uuid4(), TTL_US)
    await world.leases.renew(first, -1)
    assert not await world.leases.take_over(second, first.shard_id, 0)


async def test_an_expired_lease_that_stood_still_is_taken_over(world: World) -> None:
    first = await world.own_all()
    second = await world.leases.join(uuid4(), TTL_US)
    await world.leases.renew(first, -1)
    survey = await world.leases.survey()
    seen = {view.shard_id: view for view in survey.shards}
    before = survey.partitions[0].epoch
    assert seen[first.shard_id].is_expired
    assert await world.leases.take_over(second, first.shard_id, seen[first.shard_id].renewals)
    assert not await world.leases.take_over(second, first.shard_id, 1)
    taken = await world.leases.acquire(second, ALL)
    assert len(taken) == 256
    assert min(row.epoch for row in taken) > before
    with pytest.raises(LeaseLost):
        await world.leases.renew(first, TTL_US)
    with pytest.raises(LeaseLost):
        await world.leases.acquire(first, ALL)


async def test_a_takeover_of_oneself_or_without_a_lease_is_refused(world: World) -> None:
    own = await world.leases.join(uuid4(), -1)
    assert not await world.leases.take_over(own, own.shard_id, 0)
    assert not await world.leases.take_over(Lease(uuid4(), 1), own.shard_id, 0)


async def test_a_shard_that_is_leaving_says_so_and_keeps_its_lease(world: World) -> None:
    lease = await world.own_all()
    lease = await world.leases.release(lease, ALL, is_leaving=True)
    await world.leases.renew(lease, TTL_US)
    survey = await world.leases.survey()
    assert [shard.is_leaving for shard in survey.shards] == [True]
    assert {each.owner for each in survey.partitions} == {None}


async def test_a_shard_shows_its_open_breakers(world: World) -> None:
    lease, other = [await world.leases.join(uuid4(), TTL_US) for _ in range(2)]
    shown = [
        OpenBreaker(
            kind=BreakerKind.JOB,
            tenant_id=uuid4(),
            target="https://worker.example:443",
            job_id=uuid4(),
            opened_at_us=world.now_us,
            next_probe_at_us=world.now_us + 1_000_000,
            error="the worker responded with 500: böse",
        )
    ]
    await world.leases.tell(lease, shown)
    assert await world.leases.read_breakers() == {lease.shard_id: shown}
    assert await world.leases.read_breakers(lease.shard_id) == {lease.shard_id: shown}
    assert await world.leases.read_breakers(other.shard_id) == {}
    await world.leases.tell(lease, [])
    assert await world.leases.read_breakers() == {}


async def test_the_breakers_of_a_shard_that_has_left_are_gone(world: World) -> None:
    lease = await world.leases.join(uuid4(), TTL_US)
    breaker = OpenBreaker(
        kind=BreakerKind.ORIGIN,
        tenant_id=uuid4(),
        target="https://worker.example:443",
        opened_at_us=0,
        next_probe_at_us=0,
        error="",
    )
    await world.leases.leave(lease)
    await world.leases.tell(lease, [breaker])
    assert await world.leases.read_breakers() == {}
