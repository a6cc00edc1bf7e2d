"""Lease connections that end: with their process, without it, and all at once."""

from uuid import UUID

import pytest
from tests.unit.shard.world import World

from wheelsched.core.partition import partition_of
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.core.token import split_token
from wheelsched.errors import StoreUnavailable

BESIDE = OverlapPolicy(policy=OnOverlap.ALLOW)


async def start_two(world: World) -> None:
    """Two shards, and 30 jobs that are due each second."""
    await world.register_many(["* * * * * *"] * 30, overlap=BESIDE)
    world.start("a")
    await world.advance(0.5)
    world.start("b")
    await world.advance(5)


def takeovers(world: World) -> int:
    return sum(shard.vitals.ownership.takeovers for shard, _ in world.shards.values())


def assert_every_second(world: World, until_s: int) -> None:
    """Every job has arrived once for each second."""
    assert set(world.keys.values()) == {1}
    assert len(world.keys) == 30 * until_s


def assert_tokens_grow(world: World) -> None:
    """No token stands for two attempts, and the epochs of a job never go down."""
    tokens = [(partition_of(callback.key.job_id), callback.token) for _, callback in world.arrived]
    assert len(set(tokens)) == len(tokens)
    latest: dict[UUID, int] = {}
    for _, callback in world.arrived:
        epoch, job_id = split_token(callback.token).epoch, callback.key.job_id
        assert epoch >= latest.get(job_id, 0)
        latest[job_id] = epoch


def epochs(world: World) -> set[int]:
    return {split_token(callback.token).epoch for _, callback in world.arrived[-30:]}


async def test_a_dead_process_is_replaced_within_a_second(world: World) -> None:
    await start_two(world)
    await world.advance(0.1)  # 5.6 s
    await world.crash("a")
    await world.advance(0.9)
    assert takeovers(world) == 1
    assert len([at_s for at_s in world.times if at_s > 5.6]) == 30
    assert max(world.times) < 6.4
    await world.advance(3)
    assert_every_second(world, 9)


async def test_a_machine_that_vanishes_is_replaced_when_its_lease_has_expired(
    world: World,
) -> None:
    await start_two(world)
    await world.kill("a")
    await world.advance(3)
    assert takeovers(world) == 0
    await world.advance(4)
    assert takeovers(world) == 1


async def test_a_shard_whose_connection_ends_renews_over_another_at_once(world: World) -> None:
    await start_two(world)
    for _ in range(5):
        before = world.links["a"].connection
        world.store.server.end(before.backend)
        assert not world.links["a"].leases.is_connected()
        await world.advance(0.05)
        assert world.links["a"].connection is not before
        assert world.links["a"].leases.is_connected()
        await world.advance(0.95)
    assert takeovers(world) == 0
    assert_every_second(world, 10)
    assert max(at_s % 1 for at_s in world.times) < 0.01


async def test_a_shard_that_cannot_connect_again_sends_nothing_and_is_taken_over(
    world: World,
) -> None:
    await start_two(world)
    await world.advance(0.1)
    world.links["a"].cut()
    await world.advance(2)
    assert takeovers(world) == 1
    assert_every_second(world, 7)
    world.links["a"].is_cut = False
    await world.advance(3)
    assert_every_second(world, 10)
    assert_tokens_grow(world)


async def test_a_shard_sends_nothing_without_its_lease_connection(world: World) -> None:
    """Its other connections are fine, and the server has no room for a new one."""

    async def fail(*_: object) -> None:
        raise StoreUnavailable

    await start_two(world)
    await world.advance(0.45)  # 5.95 s
    renew = world.links["a"].leases.renew
    world.links["a"].leases.renew = fail
    world.links["a"].connection.close()
    await world.advance(0.3)
    assert 0 < len([at_s for at_s in world.times if at_s >= 6]) < 30
    await world.advance(0.7)
    assert takeovers(world) == 1
    world.links["a"].leases.renew = renew
    await world.advance(3.05)
    assert_every_second(world, 9)


async def test_a_shard_that_is_slow_to_return_after_a_crash_of_the_server_keeps_its_lease(
    world: World,
) -> None:
    """One server process crashed, which ends all of them. The others do not take that for the
    death of a shard."""
    await start_two(world)
    world.links["a"].is_cut = True
    world.store.server.end_all()
    await world.advance(3)
    world.links["a"].is_cut = False
    await world.advance(3)
    assert takeovers(world) == 0
    assert_every_second(world, 11)


@pytest.mark.parametrize("is_restart", [True, False])
@pytest.mark.parametrize("outage_s", [0.0, 0.3, 2.0, 7.0])
async def test_no_shard_is_taken_over_when_all_connections_end_at_once(
    world: World, is_restart: bool, outage_s: float
) -> None:
    """A restart of the server, or the crash of one of its processes, which ends all others."""
    await start_two(world)
    before = epochs(world)
    await world.advance(0.1)
    world.link.is_cut = True
    if is_restart:
        world.store.server.restart()
    else:
        world.store.server.end_all()
    await world.advance(outage_s)
    world.link.is_cut = False
    await world.advance(14.9 - outage_s)
    assert takeovers(world) == 0
    assert_every_second(world, 20)
    assert_tokens_grow(world)
    assert (min(epochs(world)) > max(before)) is is_restart


async def test_a_reused_pid_puts_the_takeover_off(world: World) -> None:
    world.store.server.hides_starts = True
    await start_two(world)
    pid = world.links["a"].connection.backend.pid
    await world.crash("a")
    world.store.server.reuse_pid(pid)
    world.store.for_process().server.connect()
    await world.advance(3)
    assert takeovers(world) == 0
    await world.advance(4)
    assert takeovers(world) == 1


async def test_an_engine_without_backends_waits_for_the_lease(world: World) -> None:
    world.store.server.is_watchable = False
    await start_two(world)
    await world.crash("a")
    await world.advance(3)
    assert takeovers(world) == 0
    await world.advance(4)
    assert takeovers(world) == 1
