"""A tunnel forwards, swallows without a word, cuts and refuses."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.ha.tunnel import HOST, Tunnel
from tests.ports import reserved_port
from tests.waiting import WAIT_LIMIT_S

HELD_S = 0.1


@pytest.fixture
async def tunnel() -> AsyncIterator[Tunnel]:
    """To a server that answers with what it is told."""
    served: list[asyncio.Task[None]] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                writer.write(data)
        except ConnectionResetError:
            pass
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.create_task(echo(reader, writer)))

    with reserved_port() as target, reserved_port() as port:
        server = await asyncio.start_server(serve, HOST, target)
        async with Tunnel(port, target) as opened:
            yield opened
        server.close()
        await asyncio.wait_for(asyncio.gather(*served), WAIT_LIMIT_S)


async def test_what_it_held_arrives_when_it_is_let_go(tunnel: Tunnel) -> None:
    reader, writer = await asyncio.open_connection(HOST, tunnel.port)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    tunnel.hold()
    writer.write(b"two")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(answer := _read(reader)), HELD_S)
    tunnel.let_go()
    assert await asyncio.wait_for(answer, WAIT_LIMIT_S) == b"two"
    writer.close()


async def test_a_new_connection_is_held_too(tunnel: Tunnel) -> None:
    tunnel.hold()
    reader, writer = await asyncio.open_connection(HOST, tunnel.port)
    writer.write(b"one")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(3), HELD_S)
    writer.close()


async def test_what_was_held_is_lost_when_it_is_cut(tunnel: Tunnel) -> None:
    reader, writer = await asyncio.open_connection(HOST, tunnel.port)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    tunnel.hold()
    writer.write(b"two")
    tunnel.cut()
    tunnel.let_go()
    assert await _read_rest(reader) == b""
    writer.close()


async def test_it_refuses_and_listens_again(tunnel: Tunnel) -> None:
    tunnel.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, tunnel.port)
    await tunnel.listen()
    reader, writer = await asyncio.open_connection(HOST, tunnel.port)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    writer.close()


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    """Until the connection ends, in whatever way."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT_LIMIT_S)
    except ConnectionResetError:
        return b""


def _read(reader: asyncio.StreamReader) -> "asyncio.Task[bytes]":
    return asyncio.create_task(reader.readexactly(3))
