"""One link on the side of the shard: its frames become calls of a desk, and the reverse.

Invariant: the desk is closed when the link is lost, and gets no call afterwards.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, assert_never
from uuid import UUID

import structlog

from wheelsched.core.outcome import Outcome
from wheelsched.delivery.link.connection import Connection
from wheelsched.delivery.link.messages import (
    TO_SHARD,
    AskWaiting,
    Cancel,
    Finish,
    Forget,
    GiveBack,
    HandOut,
    Lend,
    Ping,
    Recall,
    Receipts,
    Returned,
    ToShard,
    Wait,
    WaitingAnswer,
)
from wheelsched.errors import InvalidFrame, WheelschedError
from wheelsched.ports.work import Attempted, Desks, Pool, QueueRun, Receipt

log = structlog.get_logger("wheelsched.link")

BATCH_BYTES: Final = 256 << 10  # of the runs in one frame
BATCH: Final = 1_000

Start: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


class Session:
    """The process behind a link, as its shard sees it: a `Receiver`."""

    def __init__(
        self, connection: Connection, desks: Desks, max_unwritten: int, start: Start
    ) -> None:
        self._connection = connection
        self._max_unwritten = max_unwritten
        self._start = start
        self._unwritten = 0
        self._waits: dict[tuple[UUID, str], int] = {}  # of this iteration of the loop
        connection.on_frame = self._receive
        self._desk = desks.open(self)
        connection.on_full = self._desk.pause
        connection.on_drained = self._desk.resume

    def close(self) -> None:
        """Handles the loss of the link. Outcomes that are being written are still written."""
        self._desk.close()

    # The process as a `Receiver`.

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        if self._waits:
            self._send_waits()  # they were told before
        start = size = 0
        for position, run in enumerate(runs):
            if size > BATCH_BYTES or position - start >= BATCH:
                self._connection.send(HandOut(pool, runs[start:position], until_us))
                start, size = position, 0
            size += len(run.content)
        self._connection.send(HandOut(pool, runs[start:] if start else runs, until_us))

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        for start in range(0, len(attempts), BATCH):
            self._connection.send(Cancel(attempts[start : start + BATCH]))

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        if not self._waits:
            asyncio.get_running_loop().call_soon(self._send_waits)
        self._waits[tenant_id, queue] = count

    def _send_waits(self) -> None:
        waits, self._waits = self._waits, {}  # none, if a hand-out has sent them
        for (tenant_id, queue), number in waits.items():
            self._connection.send(Wait(tenant_id, queue, number))

    # What the process sends.

    def _receive(self, frame: bytes) -> None:
        message: ToShard = TO_SHARD.decode(frame)
        match message:
            case Lend(pool, number):
                _check_count(number)
                self._desk.lend(pool, number)
            case Finish(call, outcomes):
                self._finish(call, outcomes)
            case Recall(call, pool, number):
                _check_count(number)
                self._desk.recall(pool, number, lambda found: self._return(call, found))
            case GiveBack(attempts):
                self._desk.give_back(attempts)
            case AskWaiting(call, tenant_id):
                self._start(self._tell_waiting(call, tenant_id))
            case Forget(pool):
                self._desk.forget(pool)
            case Ping():
                pass
            case never:
                assert_never(never)

    def _return(self, call: int, number: int) -> None:
        self._connection.send(Returned(call, number))

    def _finish(self, call: int, outcomes: Sequence[tuple[Attempted, Outcome]]) -> None:
        self._unwritten += len(outcomes)
        if self._unwritten > self._max_unwritten:
            self._connection.pause_reading()
        self._start(self._write(call, outcomes))

    async def _write(self, call: int, outcomes: Sequence[tuple[Attempted, Outcome]]) -> None:
        try:
            receipts = await self._desk.finish(outcomes)
        except WheelschedError as error:
            log.warning("outcomes.unwritten", count=len(outcomes), error=str(error))
            receipts = [Receipt.UNKNOWN] * len(outcomes)  # the process writes them itself
        finally:
            was_over = self._unwritten > self._max_unwritten
            self._unwritten -= len(outcomes)
            if was_over and self._unwritten <= self._max_unwritten:
                self._connection.resume_reading()
        self._connection.send(Receipts(call, receipts))

    async def _tell_waiting(self, call: int, tenant_id: UUID) -> None:
        self._connection.send(WaitingAnswer(call, await self._desk.waiting(tenant_id)))


def _check_count(number: int) -> None:
    if number < 0:
        raise InvalidFrame(f"the process sent a negative number of credits, {number}")
