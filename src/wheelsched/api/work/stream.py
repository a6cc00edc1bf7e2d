"""The stream of a worker, whatever protocol carries it.

Invariant: both sides send something at least every `ALIVE_NS`. A worker that is silent for
`SILENCE_NS`, or for `ANSWER_NS` after it was sent runs, is gone: its connection is cut and its
credits are taken back. The send queue is bounded.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol, assert_never
from uuid import UUID

import structlog

from wheelsched.api.http.problems import log_failure, problem_of
from wheelsched.api.work.reports import Reports
from wheelsched.api.work.session import Session
from wheelsched.core.model import format_run_id
from wheelsched.errors import InvalidField, WheelschedError
from wheelsched.ports import Clock
from wheelsched.ports.work import DELIVERY_LEASE_US, QueueRun
from wheelsched.wire import stream as wire
from wheelsched.wire.queue import ReturnedItem, read_lease, read_queues

log = structlog.get_logger("wheelsched.api")

SECOND_NS: Final = 1_000_000_000
ALIVE_NS: Final = 10 * SECOND_NS
SILENCE_NS: Final = 25 * SECOND_NS
ANSWER_NS: Final = DELIVERY_LEASE_US * 1_000  # then the runs are lost to the worker anyway
HELLO_NS: Final = 10 * SECOND_NS
MAX_REPORTS: Final = 16  # messages of one stream that are being written to the store
MAX_OUTBOX: Final = 256  # messages that wait to be sent; with more, none is read
CLOSE_S: Final = 5.0
WELCOME: Final = wire.Welcome(
    alive_ms=ALIVE_NS // 1_000_000,
    silence_ms=SILENCE_NS // 1_000_000,
    delivery_lease_ms=DELIVERY_LEASE_US // 1_000,
)


class StreamConnection(Protocol):
    """The messages of a stream in the encoding of a protocol.

    `send` and `send_runs` raise `ConnectionError` if the connection is lost.
    """

    async def receive(self) -> wire.WorkerMessage | None:
        """The next message; None when the worker has ended the stream."""

    async def send(self, message: wire.SchedulerMessage) -> None: ...

    async def send_runs(self, runs: Sequence[QueueRun], expires_us: int) -> None: ...

    async def close(self, error: WheelschedError | None) -> None:
        """Ends the stream; the error tells the worker why."""

    def cut(self) -> None:
        """Ends the stream of a worker that does not answer, without waiting for it."""


class WorkStream:
    """One stream, from its first message to its end."""

    def __init__(
        self,
        connection: StreamConnection,
        session: Session,
        reports: Reports,
        tenant_id: UUID,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._session = session
        self._reports = reports
        self._tenant_id = tenant_id
        self._clock = clock
        self._outbox: deque[wire.SchedulerMessage] = deque()
        self._sending = asyncio.Lock()  # gRPC takes one message at a time
        self._has_room = asyncio.Event()
        self._room_for_reports = asyncio.Semaphore(MAX_REPORTS)
        self._lease_us: int | None = None
        self._heard_ns = self._sent_ns = clock.now_ns()
        self._unanswered_ns: int | None = None  # when the first runs went to a silent worker
        self._is_leaving = False
        self._is_ending = False
        self._error: WheelschedError | None = None  # why it ends

    async def run(self) -> None:
        """Serves the stream until one side ends it."""
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write())
            try:
                await self._read(group)
            except ConnectionError:
                pass  # the worker has gone
            except WheelschedError as error:
                self.end(error)
            finally:
                await self._session.close()
            self.end()
            await asyncio.wait([writer], timeout=CLOSE_S)
            writer.cancel()

    def end(self, error: WheelschedError | None = None) -> None:
        """Ends the stream after what waits to be sent."""
        if self._is_ending:
            return
        self._is_ending = True
        self._error = error
        self._session.changed.set()
        if error is not None:
            log_failure(error, problem_of(error).status)

    async def leave(self, reason: str) -> None:
        """Takes back all credits, and tells the worker to go elsewhere."""
        if not self._is_leaving:
            self._is_leaving = True
            await self._session.withdraw()
            self._send(wire.Goodbye(reason=reason))

    def tick(self) -> None:
        """Cuts the connection of a silent worker, and sends a keep-alive when one is due."""
        now_ns = self._clock.now_ns()
        limit_ns = SILENCE_NS if self._session.is_open else HELLO_NS
        is_silent = now_ns - self._heard_ns > limit_ns
        is_owing = self._unanswered_ns is not None and now_ns - self._unanswered_ns > ANSWER_NS
        if is_silent or is_owing:
            log.info("stream.silent", silent_ms=(now_ns - self._heard_ns) // 1_000_000)
            self._connection.cut()
        elif now_ns - self._sent_ns >= ALIVE_NS and not self._outbox:
            self._send(wire.Alive())

    def _send(self, message: wire.SchedulerMessage) -> None:
        self._outbox.append(message)
        self._session.changed.set()

    async def _read(self, group: asyncio.TaskGroup) -> None:
        while not self._is_ending:
            message = await self._connection.receive()
            if message is None:
                return
            self._heard_ns = self._clock.now_ns()
            self._unanswered_ns = None
            await self._handle(message, group)
            while len(self._outbox) > MAX_OUTBOX:
                self._has_room.clear()
                await self._has_room.wait()

    async def _handle(self, message: wire.WorkerMessage, group: asyncio.TaskGroup) -> None:
        if self._session.is_open is isinstance(message, wire.Hello):
            raise InvalidField("the first message, and no other, must be 'hello'", pointer="/type")
        match message:
            case wire.Hello():
                self._lease_us = read_lease(message.lease, pointer="/lease")
                queues = read_queues(message.queues)
                async with self._sending:
                    await self._connection.send(WELCOME)  # before the first runs
                self._session.register(queues, message.credits)
            case wire.AddCredits():
                self._add_credits(message.credits)
            case wire.Outcomes():
                self._add_credits(message.credits)
                await self._report(self._finish(message), group)
            case wire.Heartbeats():
                await self._report(self._heartbeat(message), group)
            case wire.GiveBack():
                self._reports.give_back(self._tenant_id, message.items)
            case wire.Stop():
                await self._session.withdraw()
                self._send(wire.Stopped())
            case wire.Alive():
                pass
            case never:
                assert_never(never)

    def _add_credits(self, count: int) -> None:
        if not self._is_leaving:
            self._session.add_credits(count)

    async def _report(self, reporting: Awaitable[None], group: asyncio.TaskGroup) -> None:
        """Processes a report in the background; the next message is read meanwhile."""

        async def report() -> None:
            try:
                await reporting
            except WheelschedError as error:
                self.end(error)
            finally:
                self._room_for_reports.release()

        await self._room_for_reports.acquire()
        group.create_task(report())

    async def _finish(self, message: wire.Outcomes) -> None:
        items = await self._reports.finish(self._tenant_id, message.items)
        self._send(wire.OutcomesAnswered(id=message.id, items=items))

    async def _heartbeat(self, message: wire.Heartbeats) -> None:
        items = await self._reports.heartbeat(self._tenant_id, message.items, self._lease_us)
        self._send(wire.HeartbeatsAnswered(id=message.id, items=items))

    async def _write(self) -> None:
        session = self._session
        try:
            while True:
                await session.changed.wait()
                session.changed.clear()
                async with self._sending:
                    await self._write_all()
                    if self._is_ending and not self._outbox:
                        await self._connection.close(self._error)
                        return
        except ConnectionError:
            return  # the reader sees it, too

    async def _write_all(self) -> None:
        while (batch := self._session.take_batch()) is not None:
            if self._unanswered_ns is None:
                self._unanswered_ns = self._clock.now_ns()
            await self._connection.send_runs(batch[1], batch[0])
            self._sent_ns = self._clock.now_ns()
        if cancelled := self._session.take_cancelled():
            items = [
                ReturnedItem(run_id=format_run_id(each.key), token=each.token) for each in cancelled
            ]
            await self._write_message(wire.Cancel(items=items))
        while self._outbox:
            await self._write_message(self._outbox[0])
            self._outbox.popleft()
        self._has_room.set()

    async def _write_message(self, message: wire.SchedulerMessage) -> None:
        await self._connection.send(message)
        self._sent_ns = self._clock.now_ns()
