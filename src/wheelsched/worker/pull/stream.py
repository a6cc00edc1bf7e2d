"""One stream to the API: registers the worker, and carries what both sides say.

Invariant: the stream ends when the API says goodbye or is silent for too long. Nothing is lost with
it: `Hands` says again on the next stream what was not confirmed.
"""

import asyncio
import logging
from typing import Final, assert_never

import msgspec
from aiohttp import ClientWebSocketResponse, WSMsgType

from wheelsched.errors import StreamEnded
from wheelsched.ports import Clock
from wheelsched.wire import stream as wire
from wheelsched.wire.queue import HeartbeatItem
from wheelsched.worker import log
from wheelsched.worker.pull.hands import Hands

TICK_NS: Final = 500_000_000
WELCOME_S: Final = 10.0
SEND_S: Final = 10.0
DEFAULT_SILENCE_S: Final = 25.0


class Stream:
    """A connected stream."""

    def __init__(self, websocket: ClientWebSocketResponse, hands: Hands, clock: Clock) -> None:
        self.is_stopped = asyncio.Event()  # no run follows
        self._websocket = websocket
        self._hands = hands
        self._clock = clock
        self._credits = 0  # given, and not used yet
        self._alive_ns = 10_000_000_000
        self._silence_s = DEFAULT_SILENCE_S
        self._sent_ns = clock.now_ns()
        self._heartbeats: dict[int, list[HeartbeatItem]] = {}  # by the id of the message
        self._message_id = 0
        self._wants_stop = False

    async def register(self, worker_id: str, queues: tuple[str, ...]) -> None:
        """Says hello, and waits for the welcome."""
        self._credits = self._hands.room
        hello = wire.Hello(
            worker_id=worker_id, queues=queues, credits=self._credits, lease=self._hands.lease
        )
        await self._send(wire.encode(hello))
        welcome = await self._receive(WELCOME_S)
        if not isinstance(welcome, wire.Welcome):
            raise StreamEnded(_reason(welcome))
        self._alive_ns = welcome.alive_ms * 1_000_000
        self._silence_s = welcome.silence_ms / 1_000
        self._hands.resume()

    async def run(self) -> None:
        """Carries messages until the stream ends, which raises `StreamEnded`."""
        reader = asyncio.create_task(self._read())
        writer = asyncio.create_task(self._write())
        ticker = asyncio.create_task(self._tick())
        tasks = (reader, writer, ticker)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    def stop(self) -> None:
        """Asks for no more runs."""
        self._wants_stop = True
        self._hands.changed.set()

    async def _read(self) -> None:
        while True:
            message = await self._receive(self._silence_s)
            match message:
                case wire.Runs():
                    self._credits -= len(message.runs)
                    self._hands.take(message.runs)
                case wire.OutcomesAnswered():
                    self._log_refused(message)
                    self._hands.confirm(message.id)
                case wire.HeartbeatsAnswered():
                    self._hands.hear(self._heartbeats.pop(message.id, []), message.items)
                case wire.Cancel():
                    self._hands.cancel(message.items)
                case wire.Stopped():
                    self.is_stopped.set()
                case wire.Goodbye() | wire.Refused():
                    raise StreamEnded(_reason(message))
                case wire.Alive() | wire.Welcome():
                    pass
                case never:
                    assert_never(never)

    async def _receive(self, timeout_s: float) -> wire.SchedulerMessage:
        try:
            frame = await self._websocket.receive(timeout=timeout_s)
        except TimeoutError:
            raise StreamEnded("the API was silent for too long") from None
        if frame.type is not WSMsgType.TEXT:
            raise StreamEnded
        try:
            return wire.scheduler_decoder.decode(frame.data)
        except msgspec.DecodeError as error:
            raise StreamEnded(f"the API sent an invalid message: {error}") from error

    async def _write(self) -> None:
        hands = self._hands
        while True:
            await hands.changed.wait()
            hands.changed.clear()
            if self._wants_stop:
                self._wants_stop = False
                await self._send(wire.encode(wire.Stop()))
            while returned := hands.take_returned():
                await self._send(wire.encode(wire.GiveBack(items=returned)))
            await self._write_outcomes()

    async def _write_outcomes(self) -> None:
        """Sends outcomes, and credits with them."""
        while True:
            message_id, outcomes = self._hands.take_outcomes()
            more = max(0, self._hands.room - self._credits)
            if not outcomes and not more:
                return
            self._credits += more
            message = wire.Outcomes(id=message_id, items=outcomes, credits=more)
            await self._send(wire.encode(message))

    async def _tick(self) -> None:
        while True:
            for items in self._hands.take_heartbeats():
                self._message_id += 1
                self._heartbeats[self._message_id] = items
                message = wire.Heartbeats(id=self._message_id, items=items)
                await self._send(wire.encode(message))
            if self._clock.now_ns() - self._sent_ns >= self._alive_ns:
                await self._send(wire.ALIVE)
            await self._clock.sleep(TICK_NS)

    async def _send(self, message: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_S):
                await self._websocket.send_frame(message, WSMsgType.TEXT)
        except (ConnectionError, TimeoutError) as error:
            raise StreamEnded(str(error) or None) from error
        self._sent_ns = self._clock.now_ns()

    def _log_refused(self, message: wire.OutcomesAnswered) -> None:
        for answer in message.items:
            if not answer.accepted:
                detail = f"the outcome of {answer.run_id} was not accepted: {answer.reason}"
                log.write(logging.WARNING, "run.stale", detail, {"run_id": answer.run_id})


def _reason(message: wire.SchedulerMessage) -> str:
    match message:
        case wire.Goodbye():
            return message.reason
        case wire.Refused():
            return f"the API refused a message: {bytes(message.problem).decode()}"
        case _:
            return "the API did not answer the registration"
