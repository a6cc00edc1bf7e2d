"""The worker of a process that has its own shard: runs go to the handlers without a protocol.

Invariant: the worker never has more runs than credits. An outcome is reported until it is written,
and every run sends heartbeats until then. What was not begun is given back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from wheelsched.api.work.reports import Reports
from wheelsched.core.model import format_run_id
from wheelsched.errors import StoreError
from wheelsched.ports import Clock
from wheelsched.ports.work import Attempted, QueueRun, Subscription, WorkSource
from wheelsched.wire.queue import ClaimedRun, HeartbeatItem, OutcomeItem, ReturnedItem
from wheelsched.worker import log
from wheelsched.worker.pull.hands import Hands

TICK_NS: Final = 500_000_000
FIRST_PAUSE_NS: Final = 250_000_000  # after the database failed; it doubles each time
LONGEST_PAUSE_NS: Final = 2_000_000_000
POLL_NS: Final = 10_000_000  # between two looks while the worker drains
MAX_REPORTS: Final = 16  # batches of outcomes that are being written
WITHDRAW_S: Final = 2.0
REPORT_S: Final = 5.0  # for the last outcomes
ABANDON_S: Final = 2.0  # for handlers to end that are cancelled

Answers = TypeVar("Answers")

_LEASE: Final = b',"lease_expires_at":""}'  # nothing reads it: heartbeats are sent in time
_decode: Final = msgspec.json.Decoder(ClaimedRun).decode


class LocalWorker:
    """Takes runs of a `WorkSource` and hands them to the handlers of this process."""

    def __init__(
        self, source: WorkSource, tenant_id: UUID, hands: Hands, clock: Clock, lease_us: int
    ) -> None:
        self.short_name: Callable[[str], str] = lambda name: name
        self._source = source
        self._reports = Reports(source)
        self._tenant_id = tenant_id
        self._hands = hands
        self._clock = clock
        self._lease_us = lease_us
        self._subscription: Subscription | None = None
        self._credits = 0  # given, and not used yet
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs and every outcome was written."""
        return self._hands.is_settled and not self._writing

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs."""
        return not self._hands.is_empty

    def subscribe(self, queues: Sequence[str]) -> None:
        """Begins to take runs of these queues."""
        self._subscription = self._source.subscribe(
            self._tenant_id, queues, self._take, self._cancel
        )
        self._add_credits()

    async def run(self) -> None:
        """Reports what the handlers did, until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._report())
                tasks.create_task(self._keep_alive())
        finally:
            for task in self._writing:
                task.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Takes no more runs, and waits for those in hand; then it cancels them."""
        self._hands.drain()
        await self._withdraw()
        if not await self._wait(timeout_s, lambda: self._hands.is_empty):
            self._hands.end_all()
        await self._wait(REPORT_S, lambda: self.is_idle)

    async def abandon(self) -> None:
        """Cancels what is still in hand; nothing of it is reported."""
        self._hands.drain()
        await self._withdraw()
        self._hands.end_all()
        if not await self._wait(ABANDON_S, lambda: self._hands.is_empty):
            detail = "handlers were cancelled and did not end; they still run in this process"
            log.write(logging.ERROR, "worker.stuck", detail, {})

    async def _withdraw(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            async with asyncio.timeout(WITHDRAW_S):
                await subscription.withdraw()
        except TimeoutError:
            log.write(logging.WARNING, "worker.draining", "credits were not returned", {})

    async def _wait(self, timeout_s: float, is_so: Callable[[], bool]) -> bool:
        until_ns = self._clock.now_ns() + int(timeout_s * 1e9)
        while not is_so() and self._clock.now_ns() < until_ns:
            await self._clock.sleep(POLL_NS)
        return is_so()

    def _take(self, runs: Sequence[QueueRun], until_us: int) -> None:
        self._credits -= len(runs)
        self._hands.take([self._claimed(run) for run in runs])

    def _claimed(self, run: QueueRun) -> ClaimedRun:
        claimed = _decode(run.content + _LEASE)
        return replace(claimed, job_name=self.short_name(claimed.job_name))

    def _cancel(self, attempts: Sequence[Attempted]) -> None:
        self._hands.cancel(
            [ReturnedItem(run_id=format_run_id(each.key), token=each.token) for each in attempts]
        )

    def _add_credits(self) -> None:
        more = self._hands.room - self._credits
        if more > 0 and self._subscription is not None:
            self._credits += more
            self._subscription.add_credits(more)

    async def _report(self) -> NoReturn:
        hands = self._hands
        while True:
            await hands.changed.wait()
            hands.changed.clear()
            while returned := hands.take_returned():
                self._reports.give_back(self._tenant_id, returned)
            self._write_outcomes()
            self._add_credits()

    def _write_outcomes(self) -> None:
        while len(self._writing) < MAX_REPORTS:
            message_id, outcomes = self._hands.take_outcomes()
            if not outcomes:
                return
            task = asyncio.get_running_loop().create_task(self._write(message_id, outcomes))
            self._writing.add(task)
            task.add_done_callback(self._written)

    def _written(self, task: "asyncio.Task[None]") -> None:
        self._writing.discard(task)
        self._hands.changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.write(logging.ERROR, "worker.failed", repr(error), {}, raised=error)

    async def _write(self, message_id: int, outcomes: list[OutcomeItem]) -> None:
        answers = await self._retry(lambda: self._reports.finish(self._tenant_id, outcomes))
        for answer in answers:
            if not answer.accepted:
                detail = f"the outcome of {answer.run_id} was not accepted: {answer.reason}"
                log.write(logging.WARNING, "run.stale", detail, {"run_id": answer.run_id})
        self._hands.confirm(message_id)

    async def _keep_alive(self) -> NoReturn:
        while True:
            for items in self._hands.take_heartbeats():
                await self._send_heartbeats(items)
            await self._clock.sleep(TICK_NS)

    async def _send_heartbeats(self, items: list[HeartbeatItem]) -> None:
        answers = await self._retry(
            lambda: self._reports.heartbeat(self._tenant_id, items, self._lease_us)
        )
        self._hands.hear(items, answers)

    async def _retry(self, call: Callable[[], Awaitable[Answers]]) -> Answers:
        """Calls until the database answers."""
        pause_ns = FIRST_PAUSE_NS
        while True:
            try:
                return await call()
            except StoreError as error:
                log.write(logging.WARNING, "database.awaited", str(error), {})
            await self._clock.sleep(pause_ns)
            pause_ns = min(2 * pause_ns, LONGEST_PAUSE_NS)
