"""The crew: how many attempts are at work at once, and how they all come to an end.

Invariant: every task of the worker has its owner here or in `accepted`, and their number is
bounded: attempts at work, attempts that wait for a place or for another attempt of their run, runs
that were accepted. Whoever waits has no place but while it looks: waiting keeps nobody from work.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wheelsched.config import WorkerConfig
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.core.outcome import Accepted, Failed, Outcome
from wheelsched.errors import AcceptanceImpossible
from wheelsched.worker.accepted import AcceptedRuns
from wheelsched.worker.attempt import IN_PROGRESS, UNAVAILABLE, Attempt, Equipment
from wheelsched.worker.delivery import Delivery
from wheelsched.worker.handler import Handler

CLEANUP_S: Final = 5.0  # for handlers that were cancelled, and for the last reports
RETRY_AFTER_US: Final = SECOND
LOOK_EACH_NS: Final = 2_000_000_000  # of a run that has another attempt at work
PATIENCE: Final = 0.9  # of a sender's timeout: the answer has to be there before that has passed
STOPPING: Final = Failed(
    error="the worker is stopping", http_status=UNAVAILABLE, retry_after_us=RETRY_AFTER_US
)


class Crew:
    """Performs attempts, as many at once as it has places."""

    def __init__(
        self, equipment: Equipment, config: WorkerConfig, accepted: AcceptedRuns | None = None
    ) -> None:
        self._equipment = equipment
        self._config = config
        self._accepted = accepted
        self._places = asyncio.Semaphore(config.concurrency)
        self._waiting = 0
        self._at_work: set[Attempt] = set()
        self._is_stopping = False

    @property
    def has_room(self) -> bool:
        """Whether a request may come in."""
        return not self._is_stopping and self._waiting < self._config.max_waiting

    async def perform(self, delivery: Delivery, handler: Handler | None) -> Outcome:
        """Makes an attempt when there is a place, and gives its outcome, or that it goes on.

        While another attempt of the run is at work, as after the death of the shard that had sent
        it, this one waits for its end as long as the sender waits. To be told to come back costs a
        run one of its attempts, and it has few.
        """
        clock = self._equipment.clock
        until_ns = clock.now_ns() + self._patience_ns(delivery)
        while True:
            outcome = await self._perform_in_place(delivery, handler)
            left_ns = until_ns - clock.now_ns()
            if outcome is not IN_PROGRESS or left_ns <= 0:
                return outcome
            with self._noted_as_waiting():
                await clock.sleep(min(LOOK_EACH_NS, left_ns))

    async def stop(self) -> None:
        """Takes on no more, lets what is at work end until the deadline, and cancels the rest.

        What was cancelled is answered or reported as a failure that is worth another attempt.
        """
        self._is_stopping = True
        late = await self._wait_for_attempts(self._config.stop_timeout_ms / 1_000)
        for attempt in late:
            attempt.cancel("the worker stopped before the run had ended")
        await self._wait_for_attempts(CLEANUP_S)
        if self._accepted is not None:
            await self._accepted.stop(CLEANUP_S)
        self._equipment.threads.shutdown(wait=False, cancel_futures=True)

    def _patience_ns(self, delivery: Delivery) -> int:
        timeout_us = delivery.timeout_us or self._config.timeout_ms * MILLISECOND
        return int(timeout_us * 1_000 * PATIENCE)

    @contextmanager
    def _noted_as_waiting(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _perform_in_place(self, delivery: Delivery, handler: Handler | None) -> Outcome:
        with self._noted_as_waiting():
            await self._places.acquire()
        try:
            if self._is_stopping:
                return STOPPING
            return await self._attempt(delivery, handler)
        finally:
            self._places.release()

    async def _wait_for_attempts(self, timeout_s: float) -> set[Attempt]:
        """Those that are still at work after the timeout."""
        if tasks := [attempt.task for attempt in self._at_work]:
            await asyncio.wait(tasks, timeout=timeout_s)
        return set(self._at_work)

    async def _attempt(self, delivery: Delivery, handler: Handler | None) -> Outcome:
        attempt = Attempt(delivery, handler, self._equipment, self._admit)
        self._at_work.add(attempt)
        attempt.task.add_done_callback(lambda _: self._at_work.discard(attempt))
        try:
            ends: list[asyncio.Future[Any]] = [attempt.task, attempt.accepted]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            attempt.cancel("the request was given up")
            await asyncio.wait([attempt.task], timeout=CLEANUP_S)
            self._dismiss(attempt)
            raise
        if attempt.task.done():
            self._dismiss(attempt)
            return attempt.task.result()
        assert self._accepted is not None, "a run was admitted by nobody"
        self._accepted.carry(attempt)
        return Accepted()

    def _dismiss(self, attempt: Attempt) -> None:
        if self._accepted is not None:
            self._accepted.dismiss(attempt)

    def _admit(self, attempt: Attempt) -> None:
        if attempt.delivery.is_batched:
            raise AcceptanceImpossible(
                "a run of a batch ends with its request: set target.batch of this job to 1"
            )
        if self._accepted is None:
            raise AcceptanceImpossible(
                "a run that goes on after its answer is reported by REST: give the Worker a client"
            )
        self._accepted.admit(attempt)
