"""The runs that a worker has in hand, from their arrival to their confirmed outcome.

Invariant: there are never more runs in hand than `concurrency`. A run sends heartbeats until it has
ended, and its outcome is reported until the scheduler has confirmed it. What was not begun can be
given back. No task is started but one for each call of a handler.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, assert_never

from msgspec import Struct

from wheelsched.config import WorkerConfig
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.values.duration import MILLISECOND, SECOND, format_duration
from wheelsched.wire.callback import read_instant
from wheelsched.wire.queue import (
    MAX_ITEMS,
    ClaimedRun,
    HeartbeatAnswer,
    HeartbeatItem,
    OutcomeItem,
    ReturnedItem,
)
from wheelsched.worker.attempt import IN_PROGRESS, Attempt, Resources
from wheelsched.worker.delivery import Delivery
from wheelsched.worker.executor import POLL_NS, WAIT_SHARE
from wheelsched.worker.handler import Handler

FIRST_HEARTBEAT_NS: Final = 1_500_000_000  # the delivery lease is 5 s
HEARTBEATS: Final = 3  # per lease, so two may be lost
MAX_UNCONFIRMED: Final = 10_000  # outcomes; with more, the worker takes fewer runs
LOST: Final = "the run has a later attempt, or has ended"
CANCELLED: Final = "the run was cancelled"
STOPPED: Final = "the worker stopped before the run ended"


FindHandler: TypeAlias = Callable[[ClaimedRun], Handler | None]


class Key(NamedTuple):
    """An attempt of a run."""

    run_id: str
    token: int


class InHand(Struct):
    """A run in hand."""

    delivery: Delivery
    handler: Handler | None
    arrived_ns: int
    heartbeat_ns: int  # when the next one is due
    attempt: Attempt | None = None  # None: not begun, or waiting for another attempt of the run
    has_begun: bool = False
    is_lost: bool = False  # its outcome does not matter any more


class Hands:
    """Begins runs, and collects what there is to say about them.

    `find_handler` returns the handler of a run, or None if this worker has none.
    """

    def __init__(
        self,
        find_handler: FindHandler,
        resources: Resources,
        config: WorkerConfig,
        concurrency: int,
    ) -> None:
        self.changed = asyncio.Event()  # there is something to say
        self._find_handler = find_handler
        self._resources = resources
        self._config = config
        self._concurrency = concurrency
        self._clock = resources.clock
        self._lease_ns = config.lease_ms * 1_000_000
        self._held: dict[Key, InHand] = {}
        self._threads_used = 0
        self._waiting: deque[Key] = deque()  # for a thread
        self._unsent: dict[Key, OutcomeItem] = {}
        self._unconfirmed: dict[int, dict[Key, OutcomeItem]] = {}  # by the id of the message
        self._returned: list[ReturnedItem] = []
        self._message_id = 0
        self._is_draining = False

    @property
    def lease(self) -> str:
        return format_duration(self._config.lease_ms * MILLISECOND)

    @property
    def room(self) -> int:
        """How many more runs the worker takes."""
        unconfirmed = sum(map(len, self._unconfirmed.values())) + len(self._unsent)
        room = self._concurrency - len(self._held) - max(0, unconfirmed - MAX_UNCONFIRMED)
        return 0 if self._is_draining else max(0, room)

    @property
    def is_empty(self) -> bool:
        """Whether no run is in hand."""
        return not self._held

    @property
    def is_settled(self) -> bool:
        """Whether no run is in hand and no outcome waits for its confirmation."""
        return not (self._held or self._unsent or self._unconfirmed or self._returned)

    def take(self, runs: Sequence[ClaimedRun]) -> None:
        """Begins runs; while the worker drains, gives them back."""
        if self._is_draining:
            self._give_back([Key(run.run_id, run.fencing_token) for run in runs])
            return
        now_ns = self._clock.now_ns()
        for run in runs:
            key = Key(run.run_id, run.fencing_token)
            handler = self._find_handler(run)
            held = InHand(delivery_of(run), handler, now_ns, now_ns + FIRST_HEARTBEAT_NS)
            self._held[key] = held
            self._begin(key, held)

    def cancel(self, items: Sequence[ReturnedItem]) -> None:
        """Cancels runs because the scheduler says so."""
        for item in items:
            self._end(Key(item.run_id, item.token), CANCELLED)

    def drain(self) -> None:
        """Takes no more runs, and gives back those that were not begun."""
        self._is_draining = True
        unbegun = [key for key, held in self._held.items() if not held.has_begun]
        for key in unbegun:
            del self._held[key]
        self._waiting.clear()
        self._give_back(unbegun)
        self.changed.set()

    def end_all(self) -> None:
        """Cancels all runs; their outcomes are failures."""
        for key in list(self._held):
            self._end(key, STOPPED)

    def resume(self) -> None:
        """A new stream: everything that was not confirmed is said again."""
        now_ns = self._clock.now_ns()
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for items in unconfirmed.values():
            self._unsent |= items
        for held in self._held.values():
            held.heartbeat_ns = min(held.heartbeat_ns, now_ns)
        self.changed.set()

    def take_outcomes(self) -> tuple[int, list[OutcomeItem]]:
        """Outcomes to send now, at most `MAX_ITEMS`, and the id of their message."""
        unsent = self._unsent
        if len(unsent) <= MAX_ITEMS:
            self._unsent = {}
        else:
            keys = list(unsent)[:MAX_ITEMS]
            unsent = {key: self._unsent.pop(key) for key in keys}
        self._message_id += 1
        if unsent:
            self._unconfirmed[self._message_id] = unsent
        return self._message_id, list(unsent.values())

    def confirm(self, message_id: int) -> None:
        """Outcomes were answered: the scheduler has them, or does not want them."""
        self._unconfirmed.pop(message_id, None)
        self.changed.set()

    def take_returned(self) -> list[ReturnedItem]:
        """Runs to give back now."""
        returned, self._returned = self._returned[:MAX_ITEMS], self._returned[MAX_ITEMS:]
        return returned

    def take_heartbeats(self) -> list[list[HeartbeatItem]]:
        """Heartbeats to send now, in lists of at most `MAX_ITEMS`."""
        now_ns = self._clock.now_ns()
        due = []
        for key, held in self._held.items():
            if held.heartbeat_ns <= now_ns and not held.is_lost:
                held.heartbeat_ns = now_ns + self._lease_ns // HEARTBEATS
                due.append(HeartbeatItem(run_id=key.run_id, token=key.token))
        return [due[i : i + MAX_ITEMS] for i in range(0, len(due), MAX_ITEMS)]

    def hear(self, items: Sequence[HeartbeatItem], answers: Sequence[HeartbeatAnswer]) -> None:
        """The answer to heartbeats: some runs may be lost or cancelled."""
        for item, answer in zip(items, answers, strict=False):
            key = Key(item.run_id, item.token)
            if not answer.held:
                self._lose(key)
            elif answer.cancel:
                self._end(key, CANCELLED)

    def _begin(self, key: Key, held: InHand) -> None:
        handler = held.handler
        if handler is not None and not handler.is_async and not held.has_begun:
            if self._threads_used >= self._config.threads:
                self._waiting.append(key)
                return
            self._threads_used += 1
        held.has_begun = True
        held.attempt = attempt = Attempt(held.delivery, handler, self._resources, _keep_going)
        attempt.task.add_done_callback(partial(self._on_end, key, held))

    def _on_end(self, key: Key, held: InHand, task: "asyncio.Task[Outcome]") -> None:
        held.attempt = None
        if task.cancelled():
            self._leave(key, held)
            return
        outcome = task.result()
        if outcome is IN_PROGRESS and self._may_wait(held):
            loop = asyncio.get_running_loop()
            loop.call_later(POLL_NS / 1e9, self._try_again, key, held)
            return
        self._leave(key, held)
        if not held.is_lost:
            self._unsent[key] = _item(key, outcome)
            self.changed.set()

    def _leave(self, key: Key, held: InHand) -> None:
        self._held.pop(key, None)
        self._free_thread(held)

    def _free_thread(self, held: InHand) -> None:
        """The thread of a run that has begun goes to the next one that waits."""
        if not held.has_begun or held.handler is None or held.handler.is_async:
            return
        self._threads_used -= 1
        while self._waiting and self._threads_used < self._config.threads:
            next_key = self._waiting.popleft()
            if (waiting := self._held.get(next_key)) is not None:
                self._begin(next_key, waiting)

    def _may_wait(self, held: InHand) -> bool:
        """Whether to wait for another attempt of the run that is executing."""
        if held.is_lost:
            return False
        timeout_us = held.delivery.timeout_us or self._config.timeout_ms * MILLISECOND
        return self._clock.now_ns() - held.arrived_ns < timeout_us * 1_000 * WAIT_SHARE

    def _try_again(self, key: Key, held: InHand) -> None:
        if self._held.get(key) is held:
            self._begin(key, held)

    def _lose(self, key: Key) -> None:
        held = self._held.get(key)
        if held is not None:
            held.is_lost = True
            self._end(key, LOST)

    def _end(self, key: Key, reason: str) -> None:
        held = self._held.get(key)
        if held is None:
            return
        if held.attempt is not None:
            held.attempt.cancel(reason)
        else:
            self._leave_unbegun(key, held, reason)

    def _leave_unbegun(self, key: Key, held: InHand, reason: str) -> None:
        """Ends a run whose handler does not execute."""
        del self._held[key]
        self._free_thread(held)
        if not held.is_lost:
            self._unsent[key] = _item(key, Failed(error=reason))
            self.changed.set()

    def _give_back(self, keys: Sequence[Key]) -> None:
        if keys:
            self._returned += [ReturnedItem(run_id=each.run_id, token=each.token) for each in keys]
            self.changed.set()


def delivery_of(run: ClaimedRun) -> Delivery:
    """The attempt that a claimed run asks for."""
    return Delivery(
        run_id=run.run_id,
        job_id=run.job_id,
        job_name=run.job_name,
        scheduled_us=read_instant(run.scheduled_at),
        attempt=run.attempt,
        token=run.fencing_token,
        idempotency_key=run.idempotency_key,
        trigger=run.trigger,
        payload=run.payload,
        traceparent=run.traceparent,
        timeout_us=run.timeout_ms * MILLISECOND,
        queue=run.queue,
    )


def _item(key: Key, outcome: Outcome) -> OutcomeItem:
    match outcome:
        case Succeeded():
            return OutcomeItem(run_id=key.run_id, token=key.token, ok=True)
        case Failed():
            after_us = outcome.retry_after_us
            return OutcomeItem(
                run_id=key.run_id,
                token=key.token,
                ok=False,
                error=outcome.error,
                retry_after=None if after_us is None else f"{-(-after_us // SECOND)}s",
                too_early=outcome.is_too_early,
            )
        case Rejected() | Gone():
            return OutcomeItem(
                run_id=key.run_id,
                token=key.token,
                ok=False,
                error=outcome.error,
                retry=False,
                gone=isinstance(outcome, Gone),
            )
        case Accepted():
            raise AssertionError("an attempt cannot end as accepted")
        case never:
            assert_never(never)


def _keep_going(_: Attempt) -> None:
    """A run that a worker pulled needs no acceptance: its heartbeats keep it."""
