"""The pipeline on a store whose loads return stale data."""

from collections.abc import Collection, Sequence

import pytest
from tests.unit.shard.world import World

from wheelsched.config import SettleConfig, ShardConfig
from wheelsched.core.model import RunKey
from wheelsched.ports import Claim, Horizon, Lease, Settled
from wheelsched.values.duration import SECOND


async def test_a_load_from_before_a_claim_does_not_restore_the_old_due_time() -> None:
    claimed: list[Claim] = []
    async with World() as world:
        timers = world.store.timers
        load, arm = timers.load, timers.arm

        async def load_late(partitions: Collection[int], until_us: int) -> Horizon:
            horizon = await load(partitions, until_us)
            await world.clock.sleep(500_000_000)
            return horizon

        async def count(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
            claimed.extend(claims)
            return await arm(lease, claims)

        timers.load = load_late  # type: ignore[method-assign] # slow on purpose
        timers.arm = count  # type: ignore[method-assign]
        await world.register("+22")
        world.start(config=ShardConfig(refresh_us=10 * SECOND))
        await world.advance(40)
    assert len(claimed) == 1
    assert len(world.arrived) == 1


async def test_a_load_does_not_duplicate_due_times_that_wait_to_be_armed() -> None:
    """A hot second is taken from the wheel at once, and armed batch by batch."""
    claimed: list[Claim] = []
    async with World() as world:
        timers = world.store.timers
        arm = timers.arm

        async def arm_late(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
            claimed.extend(claims)
            await world.clock.sleep(1_000_000_000)
            return await arm(lease, claims)

        timers.arm = arm_late  # type: ignore[method-assign] # slow on purpose
        await world.register_many(["+22"] * 4_000)
        world.start(config=ShardConfig(refresh_us=SECOND // 2))
        await world.advance(40)
    assert len(world.arrived) == 4_000
    assert len(claimed) == 4_000


async def test_a_refresh_waits_for_settle_but_not_forever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, timers = world.store.runs, world.store.timers
    write, load = runs.settle, timers.load
    loaded_s: list[float] = []

    async def write_late(settled: Sequence[Settled]) -> set[RunKey]:
        await world.clock.sleep(4_000_000_000 if world.now_s < 40 else 400_000_000_000)
        return await write(settled)

    async def note(partitions: Collection[int], until_us: int) -> Horizon:
        loaded_s.append(world.now_s)
        return await load(partitions, until_us)

    monkeypatch.setattr(runs, "settle", write_late)
    monkeypatch.setattr(timers, "load", note)
    # Of each crowd two batches are being written, and the third waits.
    await world.register_many(["+18"] * 2_500, "first", batch=100)
    await world.register_many(["+45"] * 2_500, "second", batch=100)
    world.start(config=ShardConfig(refresh_us=20 * SECOND, settle=SettleConfig(backed_up_at=0)))
    await world.advance(19)
    loaded_s.clear()
    await world.advance(75)
    assert [round(at_s) for at_s in loaded_s] == [23, 43, 83]
