"""Connections that are kept: a request goes twice only if nothing was heard of the first time."""

import asyncio

from tests.contract.dispatch.conftest import World
from tests.workers import read_request, scripted_worker

from wheelsched.core.outcome import Failed, Succeeded

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


async def test_a_kept_connection_that_has_ended_makes_no_run_late(world: World) -> None:
    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)  # and ends the connection without an answer
        requests.append(number)

    requests: list[int] = []
    async with scripted_worker(script) as url:
        assert await world.send(url) == Succeeded(http_status=200)
        assert await world.send(url) == Succeeded(http_status=200)
    assert world.begun == 3  # the one in vain counts too
    assert requests == [0]


async def test_all_kept_connections_may_have_ended(world: World) -> None:
    """As when a worker was started anew: the second time is over a fresh one."""
    together = asyncio.Barrier(3)

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        if number < 3:
            await together.wait()
        writer.write(OK)
        if number < 3:
            await read_request(reader)

    async with scripted_worker(script) as url:
        outcomes = await asyncio.gather(*(world.send(url) for _ in range(3)))
        outcomes.append(await world.send(url))
    assert outcomes == [Succeeded(http_status=200)] * 4
    assert world.begun == 5


async def test_what_was_heard_of_an_answer_is_not_asked_again(world: World) -> None:
    connections: list[int] = []

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        connections.append(number)
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.write(OK[:20])
        await writer.drain()

    async with scripted_worker(script) as url:
        assert await world.send(url) == Succeeded(http_status=200)
        assert isinstance(await world.send(url), Failed)
    assert connections == [0]


async def test_an_answer_to_nothing_is_not_taken_for_the_next(world: World) -> None:
    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        writer.write(OK + OK.replace(b"200", b"410"))
        await reader.read(-1)

    async with scripted_worker(script) as url:
        for _ in range(3):
            assert await world.send(url) == Succeeded(http_status=200)


async def test_a_fresh_connection_is_tried_once(world: World) -> None:
    connections: list[int] = []

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        connections.append(number)
        await read_request(reader)

    async with scripted_worker(script) as url:
        outcome = await world.send(url)
    assert isinstance(outcome, Failed)
    assert connections == [0]
