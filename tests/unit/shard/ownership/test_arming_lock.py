"""The arming lock: claims share it, a hand-over has it alone."""

import asyncio

from wheelsched.shard.ownership.ownership import ArmingLock


async def let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_many_claims_hold_the_lock_together() -> None:
    lock = ArmingLock()
    async with lock.shared(), lock.shared():
        pass


async def test_a_hand_over_waits_for_claims_and_blocks_later_ones() -> None:
    lock, events = ArmingLock(), []
    may_end_claim, may_end = asyncio.Event(), asyncio.Event()

    async def claim() -> None:
        async with lock.shared():
            await may_end_claim.wait()
            events.append("claimed")

    async def hand_over() -> None:
        async with lock.exclusive():
            events.append("begun")
            await may_end.wait()
            events.append("ended")

    async def claim_later() -> None:
        async with lock.shared():
            events.append("later")

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(claim())
        await let_others_run()
        tasks.create_task(hand_over())
        await let_others_run()
        tasks.create_task(claim_later())
        await let_others_run()
        assert events == []
        may_end_claim.set()
        await let_others_run()
        assert events == ["claimed", "begun"]
        may_end.set()
    assert events == ["claimed", "begun", "ended", "later"]


async def test_two_hand_overs_hold_the_lock_in_turn() -> None:
    lock, events = ArmingLock(), []

    async def hand_over(name: str) -> None:
        async with lock.exclusive():
            events.append(name)
            await let_others_run()
            events.append(name)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(hand_over("a"))
        tasks.create_task(hand_over("b"))
    assert events == ["a", "a", "b", "b"]


async def test_a_cancelled_hand_over_leaves_the_lock_open() -> None:
    lock = ArmingLock()
    async with asyncio.timeout(10), lock.shared():
        waiting = asyncio.create_task(_hand_over(lock))
        await let_others_run()
        waiting.cancel()
        await asyncio.wait([waiting])
        async with lock.shared():
            pass


async def _hand_over(lock: ArmingLock) -> None:
    async with lock.exclusive():
        pass
