"""The link of a process to one shard. It connects again by itself.

Invariant: at most one connection is open, and each has a desk of its own: what was lent to a lost
connection is not known to the next.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import structlog
from msgspec import Struct

from wheelsched.config import LinkConfig
from wheelsched.delivery.link.connection import Connection
from wheelsched.delivery.link.desk import LinkDesk
from wheelsched.delivery.link.handshake import Identity, ProcessHandshake
from wheelsched.delivery.link.messages import GREETING, WELCOME
from wheelsched.ports.clock import Clock
from wheelsched.ports.work import Desks, Receiver

log = structlog.get_logger("wheelsched.link")

Attach: TypeAlias = Callable[[Desks], Callable[[], None]]


class ShardAddress(Struct, frozen=True):
    """Where a shard listens, and who it is."""

    shard: Identity
    host: str
    port: int


class LinkClient:
    """Keeps a link to one shard.

    Each time that it is connected, it calls `attach` with the desks at its other end, and calls
    what that returned when the connection is lost.
    """

    def __init__(
        self,
        process: Identity,
        address: ShardAddress,
        attach: Attach,
        clock: Clock,
        config: LinkConfig,
    ) -> None:
        self._process = process
        self._address = address
        self._attach = attach
        self._clock = clock
        self._config = config
        self._random = Random()  # noqa: S311 - only spreads reconnects
        self.is_open = False

    async def run(self) -> None:
        """Connects again and again, until it is cancelled."""
        failures = 0
        while True:
            if await self._connect():
                failures = 0
            failures += 1
            await self._clock.sleep(self._backoff_ns(failures))

    def _backoff_ns(self, failures: int) -> int:
        most = min(self._config.backoff_ns << min(failures - 1, 20), self._config.max_backoff_ns)
        return int(most * self._random.uniform(0.5, 1.0))

    async def _connect(self) -> bool:
        """Serves one connection to its end. Returns whether its handshake was completed."""
        connection = Connection(self._config)
        dialled = Dialled(connection, ProcessHandshake(self._process, self._address.shard))
        loop = asyncio.get_running_loop()
        ticking = loop.create_task(self._tick(connection))
        try:
            await self._dial(connection)
            reason = await self._serve(dialled)
        except OSError as error:
            reason = str(error) or type(error).__name__
        finally:
            ticking.cancel()
            connection.cut("closed")
        log.info("link.lost", shard=str(self._address.shard.id), reason=reason)
        return dialled.is_open

    async def _dial(self, connection: Connection) -> None:
        timeout_s = self._config.tick_ns * self._config.silent_ticks / 1e9
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_connection(
                lambda: connection, self._address.host, self._address.port
            )

    async def _serve(self, dialled: "Dialled") -> str:
        """Returns why the connection ended."""
        await dialled.decided
        if dialled.lost.done():
            return dialled.lost.result()
        log.info("link.opened", shard=str(self._address.shard.id))
        detach = self._attach(dialled)
        self.is_open = True
        try:
            return await dialled.lost
        finally:
            self.is_open = False
            dialled.lose()
            detach()

    async def _tick(self, connection: Connection) -> None:
        while True:
            await self._clock.sleep(self._config.tick_ns)
            connection.tick()


class Dialled:
    """A connection that was dialled: first its handshake, then the desks behind it."""

    def __init__(self, connection: Connection, handshake: ProcessHandshake) -> None:
        loop = asyncio.get_running_loop()
        self.decided: asyncio.Future[None] = loop.create_future()  # it is open, or lost
        self.lost: asyncio.Future[str] = loop.create_future()
        self.is_open = False
        self._connection = connection
        self._handshake = handshake
        self._desk: LinkDesk | None = None
        connection.on_frame = self._answer
        connection.on_lost = self._end

    def open(self, receiver: Receiver) -> LinkDesk:
        """The desk of the shard (`Desks`)."""
        self._desk = LinkDesk(self._connection, receiver)
        return self._desk

    def lose(self) -> None:
        if self._desk is not None:
            self._desk.lose()

    def _answer(self, frame: bytes) -> None:
        self._connection.send(self._handshake.answer(GREETING.decode(frame)))
        self._connection.on_frame = self._check

    def _check(self, frame: bytes) -> None:
        self._handshake.check(WELCOME.decode(frame))
        self._connection.trust()
        self._connection.on_frame = self._wait
        self.is_open = True
        self._decide()

    def _wait(self, frame: bytes) -> None:
        """Only keep-alives come before the desk is open."""

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
        self._decide()

    def _decide(self) -> None:
        if not self.decided.done():
            self.decided.set_result(None)
