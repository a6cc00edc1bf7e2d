"""Executes attempts with bounded concurrency, and ends them all on stop.

Invariant: every task of the worker is owned here or in `accepted`, and their number is bounded:
attempts that execute, attempts that wait for a slot or for another attempt of their run, and
accepted runs. A waiting attempt does not occupy a slot, so waiting never blocks other work.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wheelsched.config import WorkerConfig
from wheelsched.core.outcome import Accepted, Failed, Outcome
from wheelsched.errors import AcceptanceImpossible
from wheelsched.values.duration import MILLISECOND, SECOND
from wheelsched.worker.accepted import AcceptedRuns
from wheelsched.worker.attempt import IN_PROGRESS, UNAVAILABLE, Attempt, Resources
from wheelsched.worker.delivery import Delivery
from wheelsched.worker.handler import Handler

CLEANUP_S: Final = 5.0  # for cancelled handlers and the last reports
RETRY_AFTER_US: Final = SECOND
POLL_NS: Final = 2_000_000_000  # interval of the checks for the end of another attempt
WAIT_SHARE: Final = 0.9  # of the sender's timeout; the response must arrive before that ends
STOPPING: Final = Failed(
    error="the worker is stopping", http_status=UNAVAILABLE, retry_after_us=RETRY_AFTER_US
)


class Executor:
    """Performs attempts, at most `concurrency` at once."""

    def __init__(
        self, resources: Resources, config: WorkerConfig, accepted: AcceptedRuns | None = None
    ) -> None:
        self._resources = resources
        self._config = config
        self._accepted = accepted
        self._slots = asyncio.Semaphore(config.concurrency)
        self._waiting = 0
        self._executing: set[Attempt] = set()
        self._is_stopping = False

    @property
    def has_room(self) -> bool:
        """Whether another request can be accepted."""
        return not self._is_stopping and self._waiting < self._config.max_waiting

    async def perform(self, delivery: Delivery, handler: Handler | None) -> Outcome:
        """Perform an attempt when a slot is free. Returns its outcome, or `Accepted`.

        If another attempt of the run is executing, e.g. after the shard that sent it has died, this
        one waits for its end for as long as the sender waits. A refusal would use up one of the few
        attempts of the run.
        """
        clock = self._resources.clock
        until_ns = clock.now_ns() + self._max_wait_ns(delivery)
        while True:
            outcome = await self._perform_in_slot(delivery, handler)
            left_ns = until_ns - clock.now_ns()
            if outcome is not IN_PROGRESS or left_ns <= 0:
                return outcome
            with self._counted_as_waiting():
                await clock.sleep(min(POLL_NS, left_ns))

    async def stop(self) -> None:
        """Refuse new requests, wait for running attempts until the deadline, and cancel the rest.

        A cancelled attempt is answered or reported as a failure that will be retried.
        """
        self._is_stopping = True
        late = await self._wait_for_attempts(self._config.stop_timeout_ms / 1_000)
        for attempt in late:
            attempt.cancel("the worker stopped before the run ended")
        await self._wait_for_attempts(CLEANUP_S)
        if self._accepted is not None:
            await self._accepted.stop(CLEANUP_S)
        self._resources.threads.shutdown(wait=False, cancel_futures=True)

    def _max_wait_ns(self, delivery: Delivery) -> int:
        timeout_us = delivery.timeout_us or self._config.timeout_ms * MILLISECOND
        return int(timeout_us * 1_000 * WAIT_SHARE)

    @contextmanager
    def _counted_as_waiting(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _perform_in_slot(self, delivery: Delivery, handler: Handler | None) -> Outcome:
        with self._counted_as_waiting():
            await self._slots.acquire()
        try:
            if self._is_stopping:
                return STOPPING
            return await self._attempt(delivery, handler)
        finally:
            self._slots.release()

    async def _wait_for_attempts(self, timeout_s: float) -> set[Attempt]:
        """Wait for all attempts; returns those that still execute after the timeout."""
        if tasks := [attempt.task for attempt in self._executing]:
            await asyncio.wait(tasks, timeout=timeout_s)
        return set(self._executing)

    async def _attempt(self, delivery: Delivery, handler: Handler | None) -> Outcome:
        attempt = Attempt(delivery, handler, self._resources, self._admit)
        self._executing.add(attempt)
        attempt.task.add_done_callback(lambda _: self._executing.discard(attempt))
        try:
            ends: list[asyncio.Future[Any]] = [attempt.task, attempt.accepted]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            attempt.cancel("the request was cancelled")
            await asyncio.wait([attempt.task], timeout=CLEANUP_S)
            self._release(attempt)
            raise
        if attempt.task.done():
            self._release(attempt)
            return attempt.task.result()
        assert self._accepted is not None, "an accepted run needs AcceptedRuns"
        self._accepted.follow(attempt)
        return Accepted()

    def _release(self, attempt: Attempt) -> None:
        if self._accepted is not None:
            self._accepted.release(attempt)

    def _admit(self, attempt: Attempt) -> None:
        if attempt.delivery.is_batched:
            raise AcceptanceImpossible(
                "a run of a batch cannot be accepted; set target.batch of this job to 1"
            )
        if self._accepted is None:
            raise AcceptanceImpossible(
                "accepted runs are reported by REST; pass a client to the Worker"
            )
        self._accepted.admit(attempt)
