"""Workers for the tests of dispatchers: one that behaves, and one that does what it is told."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from msgspec import Struct
from multidict import CIMultiDictProxy
from tests.ports import bound_socket


class Received(Struct, frozen=True, kw_only=True):
    """A request as a worker saw it."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes
    connection: int  # which of the connections it came by


class Worker:
    """A real server. `answer` says what it answers, 200 by default."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.answer: Callable[[Received], Awaitable[web.StreamResponse]] = _ok
        self.most_at_once = 0
        self._at_once = 0
        self._connections: dict[object, int] = {}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self._connections.setdefault(request.transport, len(self._connections))
        received = Received(
            method=request.method,
            path=request.path_qs,
            headers=request.headers,
            body=await request.read(),
            connection=connection,
        )
        self.received.append(received)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self.answer(received)
        finally:
            self._at_once -= 1

    def answers(self, status: int, text: str = "", **headers: str) -> None:
        """Answer so from now on."""

        async def answer(received: Received) -> web.Response:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, text=text, headers=named)

        self.answer = answer


async def _ok(received: Received) -> web.StreamResponse:
    return web.Response()


@asynccontextmanager
async def running_worker(tls: ssl.SSLContext | None = None) -> AsyncIterator[Worker]:
    worker = Worker()
    runner = web.ServerRunner(web.Server(worker.handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, bound_socket(), ssl_context=tls).start()
    port = runner.addresses[0][1]
    worker.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/hooks/report?a=b"
    try:
        yield worker
    finally:
        await runner.cleanup()


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


@asynccontextmanager
async def scripted_worker(script: Script) -> AsyncIterator[str]:
    """A server that runs `script` for each connection, with its number, and ends it after that."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(reader, writer, len(tasks) - 1)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the dispatcher has gone, as it may
        finally:
            writer.close()

    server = await asyncio.start_server(serve, sock=bound_socket())
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request, and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    _, _, rest = head.lower().partition(b"content-length: ")
    return await reader.readexactly(int(rest.partition(b"\r\n")[0]))


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by RST."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
