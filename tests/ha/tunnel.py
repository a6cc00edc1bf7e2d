"""A way through the network, one port of the loopback to another, that can be broken.

Invariant: while it is held, everything is swallowed in both directions and nobody is told, neither
on an open connection nor on a new one.
"""

import asyncio
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK = 1 << 16


class Tunnel:
    """Forwards to a port until it is told otherwise."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """A black hole."""
        self._open.clear()

    def let_go(self) -> None:
        """What was swallowed arrives after all."""
        self._open.set()

    def cut(self) -> None:
        """Ends every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def listen(self) -> None:
        """Accepts connections, from the beginning or again."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port)

    def refuse(self) -> None:
        """Refuses connections, as a machine does on which nobody listens."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # sockets are closed in the next turn of the loop

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        both: list[asyncio.Task[None]] = []
        try:
            await self._open.wait()
            answers, server = await asyncio.open_connection(HOST, self._target)
            self._writers.add(server)
            ways = ((reader, server), (answers, writer))
            both = [asyncio.create_task(self._carry(*way)) for way in ways]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._end(writer)
            if both:
                self._end(server)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until the one side ends, which the other is then told as well."""
        while data := await source.read(CHUNK):
            await self._open.wait()
            sink.write(data)
            await sink.drain()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        self._writers.discard(writer)
