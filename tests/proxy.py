"""A TCP proxy between one process and Postgres that understands enough of what it carries.

It can cut, hold or delay everything, hold the answers alone, refuse new connections, and set a
*trap*: when a statement of a certain kind comes by, its connection stops at that very point until
the experiment says how it goes on. What commits is a statement on its own, or a COMMIT: the Sync
behind it makes it so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, Self

Point = Literal["asked", "sent", "answered"]
Carry = Callable[[bytes], Awaitable[None]]

WAIT_S = 60
STATEMENTS = {
    "arm": ("INSERT INTO runs",),
    "settle": ("state = given.state", "SET state = 'succeeded'"),
    "renew": ("renewals = renewals + 1",),
    "write": ("INSERT", "UPDATE", "DELETE", "COMMIT"),
    "expire": ("idle_session_timeout",),
    # Of a client: to look up who it is ends in a COMMIT as well, and is none.
    "change": ("INSERT INTO audit", "register_jobs"),
}


class Trap:
    """Waits for one statement.

    `asked`: the server has heard nothing of it. `sent`: it has everything, and the connection is
    cut. `answered`: it has done it, and its client does not know.
    """

    def __init__(self, statement: str, point: Point) -> None:
        self._patterns = STATEMENTS[statement]
        self.point = point
        self.sprung = asyncio.Event()
        self.freed = asyncio.Event()

    def is_for(self, sql: str) -> bool:
        return not self.sprung.is_set() and any(one in sql for one in self._patterns)

    async def spring(self) -> None:
        """Waits for the statement."""
        async with asyncio.timeout(WAIT_S):
            await self.sprung.wait()


class Messages:
    """Cuts a stream into messages of the protocol, whole ones only."""

    def __init__(self, *, has_startup: bool) -> None:
        self._pending = b""
        self._is_startup = has_startup

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now. Each byte is copied once, however many there are."""
        pending, start = self._pending + data, 0
        messages: list[bytes] = []
        while True:
            kind = 0 if self._is_startup else 1
            if len(pending) < start + kind + 4:
                break
            length = int.from_bytes(pending[start + kind : start + kind + 4])
            end = start + kind + length
            if len(pending) < end:
                break
            # The first one has no kind; what stands for it is never looked at.
            messages.append(b"\0" + pending[:end] if self._is_startup else pending[start:end])
            self._is_startup = False
            start = end
        self._pending = pending[start:]
        return messages


class Line:
    """One connection, and what is prepared on it."""

    def __init__(
        self, proxy: "Proxy", client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._statements: dict[bytes, str] = {}
        self._asked = Messages(has_startup=True)
        self._answered = Messages(has_startup=False)
        self._trap: Trap | None = None
        self._is_in_transaction = False

    def abort(self) -> None:
        self._client.transport.abort()
        self._server.transport.abort()

    async def forward(self, data: bytes) -> None:
        """What the client says."""
        for message in self._asked.feed(data):
            self._look(message)
            trap = self._trap
            if trap is not None and trap.point == "asked":
                trap.sprung.set()
                await trap.freed.wait()
                self._trap = None
            self._server.write(message[1:] if message[:1] == b"\0" else message)
            if trap is not None and trap.point == "sent" and self._commits(message):
                await self._server.drain()
                trap.sprung.set()
                self.abort()
                return
        await self._server.drain()

    async def answer(self, data: bytes) -> None:
        """What the server says."""
        is_done = False
        for message in self._answered.feed(data):
            if message[:1] == b"Z":
                self._is_in_transaction = message[5:] != b"I"
                is_done = not self._is_in_transaction
        trap = self._trap
        if trap is not None and trap.point == "answered" and is_done:
            trap.sprung.set()
            await trap.freed.wait()
            self._trap = None
        self._client.write(data)
        await self._client.drain()

    def _commits(self, message: bytes) -> bool:
        if self._is_in_transaction:
            return message[:1] == b"Q" and b"COMMIT" in message
        return message[:1] in (b"S", b"Q")

    def _look(self, message: bytes) -> None:
        match message[:1]:
            case b"P":
                name, written, _ = message[5:].split(b"\0", 2)
                self._statements[name] = written.decode()
                return
            case b"B":
                _, name, _ = message[5:].split(b"\0", 2)
                sql = self._statements.get(name, "")
            case b"Q":
                sql = message[5:].decode()
            case _:
                return
        if self._trap is None:
            self._trap = self._proxy.trap_for(sql)


class PlainLine(Line):
    """One connection, of which nothing is understood."""

    async def forward(self, data: bytes) -> None:
        self._server.write(data)
        await self._server.drain()

    async def answer(self, data: bytes) -> None:
        self._client.write(data)
        await self._client.drain()


class Proxy:
    """Forwards to the socket of a server until it is told otherwise."""

    line: type[Line] = Line

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._server: asyncio.Server | None = None
        self._lines: set[Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = _opened()
        self._answers = _opened()
        self._traps: list[Trap] = []
        self.delay_s = 0.0  # in each direction
        self.is_refusing = False

    @property
    def port(self) -> int:
        assert self._server
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, database: str) -> str:
        return f"postgresql://wheelsched:unused@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def trap(self, statement: str, point: Point) -> Trap:
        """The next statement of that kind stops at that point."""
        trap = Trap(statement, point)
        self._traps.append(trap)
        return trap

    def trap_for(self, sql: str) -> Trap | None:
        for trap in self._traps:
            if trap.is_for(sql):
                self._traps.remove(trap)
                return trap
        return None

    def hold(self) -> None:
        """A black hole: everything is swallowed, in both directions, and nobody is told."""
        self._open.clear()

    def hold_answers(self) -> None:
        """From now on the server hears the client and the client hears nothing."""
        self._answers.clear()

    def let_go(self) -> None:
        """What was swallowed arrives after all."""
        self._open.set()
        self._answers.set()

    def cut(self) -> None:
        """Ends every connection; new ones are forwarded, and answered."""
        for line in tuple(self._lines):
            line.abort()
        self._answers.set()

    def heal(self) -> None:
        self.is_refusing = False
        self.delay_s = 0.0
        for trap in self._traps:
            trap.freed.set()
        self._traps.clear()
        self.let_go()

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
        try:
            if self.is_refusing:
                raise ConnectionRefusedError
            answers, server = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        line = self.line(self, writer, server)
        self._lines.add(line)
        for source, carry, gates in (
            (reader, line.forward, (self._open,)),
            (answers, line.answer, (self._open, self._answers)),
        ):
            task = asyncio.create_task(self._carry(source, carry, gates, line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._socket_path)

    async def _carry(
        self,
        source: asyncio.StreamReader,
        carry: Carry,
        gates: tuple[asyncio.Event, ...],
        line: Line,
    ) -> None:
        try:
            while data := await source.read(1 << 18):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                for gate in gates:
                    await gate.wait()
                await carry(data)
        except OSError:
            pass
        finally:
            line.abort()
            self._lines.discard(line)


class PortProxy(Proxy):
    """Forwards whatever is said to a port of the loopback."""

    line = PlainLine

    def __init__(self, port: int) -> None:
        super().__init__("")
        self._port = port

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)


def _opened() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate
