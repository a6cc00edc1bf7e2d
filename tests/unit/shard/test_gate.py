import asyncio

from wheelsched.shard.gate import Gate


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_many_pass_at_once() -> None:
    gate = Gate()
    async with gate.passing(), gate.passing():
        pass


async def test_it_is_closed_behind_the_last_one_and_nobody_passes_until_it_is_open() -> None:
    gate, seen = Gate(), []
    may_leave, may_open = asyncio.Event(), asyncio.Event()

    async def pass_through() -> None:
        async with gate.passing():
            await may_leave.wait()
            seen.append("left")

    async def close() -> None:
        async with gate.closed():
            seen.append("closed")
            await may_open.wait()
            seen.append("open")

    async def come_later() -> None:
        async with gate.passing():
            seen.append("later")

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(pass_through())
        await turns()
        tasks.create_task(close())
        await turns()
        tasks.create_task(come_later())
        await turns()
        assert seen == []
        may_leave.set()
        await turns()
        assert seen == ["left", "closed"]
        may_open.set()
    assert seen == ["left", "closed", "open", "later"]


async def test_two_close_it_one_after_the_other() -> None:
    gate, seen = Gate(), []

    async def close(name: str) -> None:
        async with gate.closed():
            seen.append(name)
            await turns()
            seen.append(name)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(close("a"))
        tasks.create_task(close("b"))
    assert seen == ["a", "a", "b", "b"]


async def test_who_gives_up_waiting_to_close_it_leaves_it_open() -> None:
    gate = Gate()
    async with asyncio.timeout(10), gate.passing():
        closing = asyncio.create_task(_close(gate))
        await turns()
        closing.cancel()
        await asyncio.wait([closing])
        async with gate.passing():
            pass


async def _close(gate: Gate) -> None:
    async with gate.closed():
        pass
