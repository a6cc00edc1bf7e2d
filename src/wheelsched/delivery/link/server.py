"""The listener of a shard for the processes that hand out its runs.

Invariant: a connection is served only after both sides have proven their keys, and each process has
at most one link. The number of connections that have not proven anything is bounded, and so is
their time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias
from uuid import UUID

import structlog

from wheelsched.closing import Closing
from wheelsched.config import LinkConfig
from wheelsched.delivery.link.connection import Connection
from wheelsched.delivery.link.handshake import Identity, ShardHandshake
from wheelsched.delivery.link.messages import HELLO, Hello
from wheelsched.delivery.link.session import Session
from wheelsched.errors import InvalidFrame, LinkRefused, StoreError
from wheelsched.ports.clock import Clock
from wheelsched.ports.work import Desks

log = structlog.get_logger("wheelsched.link")

FindProcess: TypeAlias = Callable[[UUID], Awaitable[Identity]]


class LinkServer(Closing):
    """Serves the desks of one shard.

    `identity` is the shard's current one, or None while it has no lease; with another identity, all
    links end. `find_process` reads the row of a process; it may raise `LinkRefused`.
    """

    def __init__(
        self, desks: Desks, find_process: FindProcess, clock: Clock, config: LinkConfig
    ) -> None:
        self._desks = desks
        self._find_process = find_process
        self._clock = clock
        self._config = config
        self._identity: Identity | None = None
        self._server: asyncio.Server | None = None
        self._unproven: set[Connection] = set()
        self._links: dict[UUID, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def links(self) -> int:
        """How many processes are connected."""
        return len(self._links)

    async def start(self) -> str:
        """Listens, and returns the address of the listener. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, self._config.host, self._config.port)
        self._start(self._tick())
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def identify(self, identity: Identity | None) -> None:
        """The shard has another identity. All links end: their processes read the new row."""
        self._identity = identity
        for connection in (*self._unproven, *self._links.values()):
            connection.cut("the shard has a new lease")

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.identify(None)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connect(self) -> Connection:
        connection = Connection(self._config)
        if self._identity is None:
            connection.cut("the shard has no lease")
        elif len(self._unproven) >= self._config.max_unproven:
            connection.cut("too many connections are in the handshake")
            log.warning("link.refused", error="too many connections are in the handshake")
        else:
            self._greet(connection, ShardHandshake(self._identity))
        return connection

    def _greet(self, connection: Connection, handshake: ShardHandshake) -> None:
        def receive(frame: bytes) -> None:
            hello = HELLO.decode(frame)
            handshake.check_knock(hello)
            connection.on_frame = refuse  # until the process is found
            self._start(self._prove(connection, handshake, hello))

        def refuse(_: bytes) -> None:
            raise InvalidFrame("the process sent more than its proof")

        def lose(reason: str) -> None:
            self._unproven.discard(connection)
            log.warning("link.refused", peer=connection.peer, error=reason)

        self._unproven.add(connection)
        connection.on_open = lambda: connection.send(handshake.greet())
        connection.on_frame = receive
        connection.on_lost = lose

    async def _prove(self, connection: Connection, handshake: ShardHandshake, hello: Hello) -> None:
        """Checks the proof of a process that knows the key of this shard."""
        try:
            process = await self._find_process(hello.process_id)
            welcome = handshake.accept(hello, process)
        except (LinkRefused, StoreError) as error:
            connection.cut(str(error))
            return
        if not connection.is_open:
            return
        if process.id not in self._links and len(self._links) >= self._config.max_links:
            connection.cut("too many links")
            return
        connection.trust()
        connection.send(welcome)
        self._open(connection, process.id)

    def _open(self, connection: Connection, process_id: UUID) -> None:
        """Serves a link. If there is an earlier one, the process has lost it already."""
        earlier = self._links.get(process_id)
        if earlier is not None:
            earlier.cut("the process has connected again")

        def lose(reason: str) -> None:
            if self._links.get(process_id) is connection:
                del self._links[process_id]
            session.close()
            log.info("link.lost", process=str(process_id), reason=reason)

        self._unproven.discard(connection)
        self._links[process_id] = connection
        session = Session(connection, self._desks, self._config.max_unwritten, self._start)
        connection.on_lost = lose
        log.info("link.opened", process=str(process_id), peer=connection.peer)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._config.tick_ns)
            for connection in (*self._unproven, *self._links.values()):
                connection.tick()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("link.failed", error=repr(error))
