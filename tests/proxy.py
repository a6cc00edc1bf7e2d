"""A TCP proxy in front of Postgres that can lose answers, or everything."""

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards to a unix socket until it is told otherwise."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes_answers = asyncio.Event()
        self._passes_answers.set()

    @property
    def port(self) -> int:
        assert self._server
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def hold_answers(self) -> None:
        """From now on the server hears the client and the client hears nothing."""
        self._passes_answers.clear()

    def cut(self) -> None:
        """Cuts every connection; new ones are forwarded again."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._passes_answers.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(self._socket_path)
        self._writers += [writer, upstream_writer]
        always = asyncio.Event()
        always.set()
        for source, sink, gate in (
            (reader, upstream_writer, always),
            (upstream_reader, writer, self._passes_answers),
        ):
            task = asyncio.create_task(self._forward(source, sink, gate))
            self._tasks.add(task)

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(65_536):
                await gate.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.transport.abort()
