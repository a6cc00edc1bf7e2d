"""Connections that are kept: a request goes out once, whatever becomes of its connection."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from tests.contract.delivery.conftest import World
from tests.ports import listening_socket, port_of
from tests.workers import read_request, scripted_worker

from wheelsched.core.outcome import Failed, Succeeded

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Peer:
    """A worker that answers each request when it is told to, and closes connections at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening_socket()
        self._listening.setblocking(False)
        self.url = f"http://127.0.0.1:{port_of(self._listening)}/"
        self.requests = 0

    async def accept(self) -> socket.socket:
        async with asyncio.timeout(60):
            accepted, _ = await self._loop.sock_accept(self._listening)
        accepted.setblocking(False)
        return accepted

    async def read(self, connection: socket.socket) -> None:
        received = b""
        async with asyncio.timeout(60):
            while not received.endswith(b'{"report" : "weekly"}'):
                received += await self._loop.sock_recv(connection, 65_536)
        self.requests += 1

    async def answer(self, connection: socket.socket) -> None:
        await self.read(connection)
        await self._loop.sock_sendall(connection, OK)

    async def answer_next(self) -> socket.socket:
        """Answers the first request of the next connection."""
        connection = await self.accept()
        await self.answer(connection)
        return connection

    async def serve(self, world: World) -> socket.socket:
        """Opens a connection for one request, which is kept afterwards."""
        sending = asyncio.create_task(world.send(self.url))
        connection = await self.answer_next()
        assert await sending == Succeeded(http_status=200)
        return connection

    def close(self) -> None:
        self._listening.close()


def hang_up(connection: socket.socket) -> None:
    connection.close()


def break_off(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def babble(connection: socket.socket) -> None:
    connection.send(OK.replace(b"200", b"410"))


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


@pytest.mark.parametrize("end", [hang_up, break_off, babble])
async def test_a_kept_connection_that_has_ended_is_not_written_to(
    world: World, peer: Peer, end: Callable[[socket.socket], None]
) -> None:
    """What the worker did arrives after the loop has last looked, and before the request."""
    kept = await peer.serve(world)
    answering = asyncio.create_task(peer.answer_next())
    end(kept)
    assert await world.send(peer.url) == Succeeded(http_status=200)
    assert world.begun == peer.requests == 2
    (await answering).close()
    kept.close()


async def test_all_kept_connections_may_have_ended(world: World, peer: Peer) -> None:
    """As when a worker was started anew."""
    sending = [asyncio.create_task(world.send(peer.url)) for _ in range(3)]
    kept = [await peer.accept() for _ in range(3)]
    for connection in kept:
        await peer.answer(connection)
    await asyncio.gather(*sending)
    answering = asyncio.create_task(peer.answer_next())
    for connection in kept:
        connection.close()
    assert await world.send(peer.url) == Succeeded(http_status=200)
    assert world.begun == peer.requests == 4
    (await answering).close()


@pytest.mark.parametrize("end", [hang_up, break_off])
async def test_what_a_worker_may_have_read_is_sent_once(
    world: World, peer: Peer, end: Callable[[socket.socket], None]
) -> None:
    kept = await peer.serve(world)
    sending = asyncio.create_task(world.send(peer.url))
    await peer.read(kept)
    end(kept)
    outcome = await sending
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("the connection was lost before the worker responded")
    assert world.begun == peer.requests == 2


async def test_what_was_heard_of_an_answer_is_not_asked_again(world: World, peer: Peer) -> None:
    kept = await peer.serve(world)
    sending = asyncio.create_task(world.send(peer.url))
    await peer.read(kept)
    kept.send(OK[:20])
    kept.close()
    assert isinstance(await sending, Failed)
    assert world.begun == peer.requests == 2


async def test_an_answer_to_half_a_request_is_the_last_of_its_connection(world: World) -> None:
    """Else the rest of the request would be read as the next one."""
    payload = b'"' + b"x" * 20_000_000 + b'"'
    heads: list[bytes] = []

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        await writer.drain()
        await asyncio.Event().wait()  # and reads no further

    async with scripted_worker(script) as url:
        assert await world.send(url, payload=payload) == Succeeded(http_status=200)
        assert await world.send(url) == Succeeded(http_status=200)
    assert len(heads) == 2


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
