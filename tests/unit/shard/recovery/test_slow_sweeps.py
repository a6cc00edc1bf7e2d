"""Partitions whose unfinished runs cannot be read at once, or not at all."""

from collections.abc import Callable, Collection, Mapping

import pytest
from tests.unit.shard.world import World

from wheelsched.config import RecoveryConfig, ShardConfig
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.errors import StoreTimeout
from wheelsched.ports import Lease

MANY = 300


class Slow(World):
    """A store that lists unfinished runs only if `is_quick` says so."""

    def __init__(self) -> None:
        super().__init__()
        self._list = self.store.runs.list_unfinished
        self.store.runs.list_unfinished = self._list_if_quick  # type: ignore[method-assign]
        self.is_quick: Callable[[Lease, Collection[int], int], bool] = lambda *_: True
        self.asked: list[tuple[Collection[int], int]] = []

    async def _list_if_quick(
        self,
        lease: Lease,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey] | None = None,
        **named: bool,
    ) -> list[RunKey]:
        self.asked.append((partitions, limit))
        if not self.is_quick(lease, partitions, limit):
            await self.clock.sleep(10_000_000_000)
            raise StoreTimeout
        return await self._list(lease, partitions, limit, after, **named)


@pytest.mark.proof
@pytest.mark.parametrize("most", [10, 100, 2_000])
async def test_a_slow_sweep_uses_smaller_pages(most: int) -> None:
    async with Slow() as world:
        jobs = await world.register_many(["+20"] * MANY)
        world.start("a")
        await world.advance(19)
        await world.kill("a")
        world.is_quick = lambda _, partitions, limit: len(partitions) * limit <= most
        shard = world.start("b")
        await world.advance(400)
        assert shard.vitals.ownership.unready_partitions == 0
        assert len(world.keys) == MANY
        for job in jobs[:10]:
            assert await world.states(job) == [RunState.SUCCEEDED]


async def test_pages_grow_again_when_the_store_is_quick() -> None:
    async with Slow() as world:
        await world.register_many(["+20"] * MANY)
        world.start("a")
        await world.advance(1)
        assert max(limit for _, limit in world.asked) == RecoveryConfig().page // 256
        await world.advance(18)
        await world.kill("a")
        world.asked.clear()
        world.is_quick = lambda *_: len(world.asked) > 5
        world.start("b")
        await world.advance(100)
        partitions = [len(partitions) for partitions, _ in world.asked]
        assert partitions[:6] == [256, 64, 16, 4, 1, 1]
        assert max(partitions[6:]) >= 2


async def test_adoption_begins_before_all_orphans_are_listed() -> None:
    """After the first page, whole partitions are read: their runs go out while others are read."""
    async with Slow() as world:
        await world.register_many(["+20"] * MANY)
        world.start("a")
        await world.advance(19)
        await world.kill("a")
        world.asked.clear()
        world.config = ShardConfig(recovery=RecoveryConfig(page=256))
        world.is_quick = lambda *_: len(world.asked) < 3  # the third page takes ten seconds
        world.start("b")
        await world.advance(9)
        assert 0 < len(world.keys) < MANY
        assert [len(partitions) for partitions, _ in world.asked[:2]] == [256, 64]
        world.is_quick = lambda *_: True
        await world.advance(30)
        assert len(world.keys) == MANY


async def test_an_unreadable_partition_does_not_block_others() -> None:
    async with Slow() as world:
        jobs = await world.register_many(["every 1s"] * 20)
        bad = partition_of(jobs[0].job_id)
        good = [job for job in jobs if partition_of(job.job_id) != bad]
        world.is_quick = lambda _, partitions, __: bad not in partitions
        shard = world.start("a")
        await world.advance(100)
        assert shard.vitals.ownership.unready_partitions <= 1
        for job in good:
            assert await world.runs(job)
        assert not await world.runs(jobs[0])


@pytest.mark.proof
@pytest.mark.parametrize("shards", [1, 2, 3])
async def test_an_unreadable_partition_is_relinquished_to_another_shard(shards: int) -> None:
    """Its first owner cannot read it; the next one can."""
    async with Slow() as world:
        (job,) = await world.register_many(["every 1s"])
        bad = partition_of(job.job_id)
        unable: set[object] = set()

        def is_quick(lease: Lease, partitions: Collection[int], _: int) -> bool:
            if bad not in partitions:
                return True
            if not unable:
                unable.add(lease.shard_id)
            return lease.shard_id not in unable

        world.is_quick = is_quick
        for number in range(shards):
            world.start(f"shard {number}")
        await world.advance(200)
        if shards == 1:
            assert not world.arrived
            world.is_quick = lambda *_: True
            await world.advance(120)
        assert len(world.arrived) > 50
        arrived = len(world.arrived)
        await world.advance(60)
        assert len(world.arrived) - arrived >= 59  # it does not go to and fro
