"""The report of due timers that are not armed."""

from collections.abc import Collection, Sequence

import pytest
from structlog.testing import capture_logs
from tests.unit.shard.world import World

from wheelsched.core.overdue import TIMER_LATE_US, Unarmed
from wheelsched.errors import FenceRaised, StoreTimeout
from wheelsched.shard.service import Shard
from wheelsched.values.duration import SECOND


async def count_reports(world: World, late_looks: int) -> int:
    """How often a shard reports late timers if its first looks find one that is late."""
    looks = 0

    async def oldest_unarmed(_: Collection[int]) -> list[Unarmed]:
        nonlocal looks
        looks += 1
        late_us = TIMER_LATE_US + SECOND if looks <= late_looks else 0
        return [Unarmed(partition=0, due_us=world.now_us() - late_us, retry_at_us=None)]

    world.store.timers.oldest_unarmed = oldest_unarmed  # type: ignore[assignment,method-assign]
    world.start()
    with capture_logs() as logs:
        await world.advance(40)
    assert looks > late_looks
    return sum(log["event"] == "arming.late" for log in logs)


async def test_timers_that_stay_late_are_reported_once(world: World) -> None:
    assert await count_reports(world, late_looks=5) == 1


async def test_what_is_about_to_be_armed_after_an_outage_is_not_reported(world: World) -> None:
    assert await count_reports(world, late_looks=1) == 0


def missing(world: World, shard: Shard) -> list[str]:
    return shard.vitals.missing(world.clock.now_ns() // 1_000)


async def test_a_shard_whose_claims_are_refused_is_not_ready(world: World) -> None:
    """As with a fence in the table that is lower than its own: it retries, and nothing is armed."""

    async def refuse(*_: object) -> Sequence[object]:
        raise FenceRaised

    await world.register("+20")
    shard = world.start()
    await world.advance(10)
    world.link.timers.arm = refuse
    await world.advance(35)
    assert missing(world, shard) == []
    await world.advance(25)
    assert missing(world, shard) == ["arm"]


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_partition_that_only_the_database_says_is_ours_counts(
    world: World, is_ours: bool
) -> None:
    async def fail(*_: object) -> Sequence[object]:
        raise StoreTimeout

    await world.register("+5")
    shard = world.start()
    world.links["a"].leases.acquire = fail
    await world.advance(1)
    (shard_id,) = world.store._tables.shards
    for row in world.store._tables.partitions:
        row.owner = shard_id if is_ours else None
    await world.advance(50)
    assert ("arm" in missing(world, shard)) is is_ours
