"""The desk of a shard at the other end of a link.

Invariant: after the connection is lost, every call that waits for an answer raises `LinkLost`, and
no credit returns by way of this desk.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, assert_never
from uuid import UUID

from wheelsched.core.outcome import Outcome
from wheelsched.delivery.link.connection import Connection
from wheelsched.delivery.link.messages import (
    FROM_SHARD,
    AskWaiting,
    Cancel,
    Finish,
    Forget,
    FromShard,
    GiveBack,
    HandOut,
    Lend,
    Message,
    Ping,
    Recall,
    Receipts,
    Returned,
    Wait,
    WaitingAnswer,
)
from wheelsched.errors import InvalidFrame, LinkLost
from wheelsched.ports.work import Attempted, Pool, Receipt, Receiver, Waiting

BATCH: Final = 1_000  # outcomes in one frame


class LinkDesk:
    """`Desk` over a connection whose handshake is complete."""

    def __init__(self, connection: Connection, receiver: Receiver) -> None:
        self._connection = connection
        self._receiver = receiver
        self._calls = count(1)
        self._recalls: dict[int, Callable[[int], None]] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._drained = asyncio.Event()
        self._drained.set()
        connection.on_frame = self._receive
        connection.on_full = self._drained.clear
        connection.on_drained = self._drained.set

    def lend(self, pool: Pool, count: int) -> None:
        self._connection.send(Lend(pool, count))

    def recall(self, pool: Pool, count: int, returned: Callable[[int], None]) -> None:
        call = next(self._calls)
        self._recalls[call] = returned
        self._connection.send(Recall(call, pool, count))

    def forget(self, pool: Pool) -> None:
        self._connection.send(Forget(pool))

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        receipts: list[Receipt] = []
        for start in range(0, len(outcomes), BATCH):
            part = outcomes[start : start + BATCH]
            found: list[Receipt] = await self._ask(partial(Finish, outcomes=part))
            if len(found) != len(part):
                self._connection.cut("the number of receipts differs from the number of outcomes")
                raise LinkLost
            receipts += found
        return receipts

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        for start in range(0, len(attempts), BATCH):
            self._connection.send(GiveBack(attempts[start : start + BATCH]))

    async def waiting(self, tenant_id: UUID) -> list[Waiting]:
        found: list[Waiting] = await self._ask(partial(AskWaiting, tenant_id=tenant_id))
        return found

    def pause(self) -> None:
        self._connection.pause_reading()

    def resume(self) -> None:
        self._connection.resume_reading()

    def close(self) -> None:
        self._connection.cut("closed")

    def lose(self) -> None:
        """The connection is lost."""
        self._recalls.clear()
        self._drained.set()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(LinkLost())

    async def _ask(self, make: Callable[[int], Message]) -> Any:
        await self._drained.wait()
        if not self._connection.is_open:
            raise LinkLost
        call = next(self._calls)
        answer = self._answers[call] = asyncio.get_running_loop().create_future()
        try:
            self._connection.send(make(call))
            return await answer
        finally:
            self._answers.pop(call, None)

    def _receive(self, frame: bytes) -> None:
        message: FromShard = FROM_SHARD.decode(frame)
        match message:
            case HandOut(pool, runs, until_us):
                self._receiver.hand_out(pool, runs, until_us)
            case Receipts(call, receipts):
                self._answer(call, receipts)
            case Wait(tenant_id, queue, number):
                self._receiver.wait(tenant_id, queue, number)
            case Returned(call, number):
                self._return(call, number)
            case Cancel(attempts):
                self._receiver.cancel(attempts)
            case WaitingAnswer(call, waiting):
                self._answer(call, waiting)
            case Ping():
                pass
            case never:
                assert_never(never)

    def _return(self, call: int, number: int) -> None:
        returned = self._recalls.pop(call, None)
        if returned is None:
            raise InvalidFrame("the shard returned credits that were not recalled")
        returned(number)

    def _answer(self, call: int, value: Sequence[object]) -> None:
        answer = self._answers.get(call)  # a caller that gave up has removed its own
        if answer is not None and not answer.done():
            answer.set_result(value)
