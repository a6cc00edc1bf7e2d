"""Accepted runs: those that were answered with 202 and go on in the background.

Invariant: while a run is at work its heartbeats tell so; when it ends, its outcome is reported;
when its token is stale, it is cancelled and nothing is reported. Their number is bounded.
"""

import asyncio
import logging
from typing import Final, Protocol, assert_never

from wheelsched.config import WorkerConfig
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.errors import ApiError, Conflict, NotFound, RetryLater
from wheelsched.ports import Clock
from wheelsched.worker import log
from wheelsched.worker.attempt import Attempt
from wheelsched.worker.delivery import Delivery

HEARTBEATS: Final = 3  # in each timeout: two may be lost
REPORTS: Final = 3  # a period apart; after that the silence is noticed anyway


class Reports(Protocol):
    """How a worker tells of its runs by REST. `wheelsched.client.Client` does.

    Each raises `Conflict` when a later attempt has begun or the run has ended, and another
    `ApiError` when it could not be told.
    """

    async def heartbeat(self, run_id: str, token: int) -> object:
        """The run is at work."""

    async def complete(self, run_id: str, token: int) -> object:
        """The run succeeded."""

    async def fail(self, run_id: str, token: int, error: str, *, retry: bool = True) -> object:
        """The attempt failed; without `retry`, for good."""


class AcceptedRuns:
    """Owns a task for each accepted run."""

    def __init__(self, reports: Reports, clock: Clock, config: WorkerConfig) -> None:
        self._reports = reports
        self._clock = clock
        self._config = config
        self._admitted: set[Attempt] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, attempt: Attempt) -> None:
        """Keeps a place for a run, or asks for another attempt when there is none."""
        if attempt not in self._admitted and len(self._admitted) >= self._config.max_accepted:
            raise RetryLater(message="the worker has accepted as many runs as it can")
        self._admitted.add(attempt)

    def dismiss(self, attempt: Attempt) -> None:
        """Gives the place back of a run that ended, or was given up, before it was answered."""
        self._admitted.discard(attempt)

    def carry(self, attempt: Attempt) -> None:
        """Sees an accepted run to its end."""
        task = asyncio.create_task(self._carry(attempt), name=f"carry {attempt.delivery.run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, timeout_s: float) -> None:
        """Waits until the ends of all runs, which others bring about, are reported."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _carry(self, attempt: Attempt) -> None:
        heartbeats = asyncio.create_task(self._heartbeat(attempt))
        try:
            await asyncio.wait([attempt.task, heartbeats], return_when=asyncio.FIRST_COMPLETED)
            if heartbeats.done():
                attempt.cancel("the run has another attempt, or has ended")
                await asyncio.wait([attempt.task])
                return
            heartbeats.cancel()
            await self._report(attempt, attempt.task.result())
        finally:
            heartbeats.cancel()
            self._admitted.discard(attempt)

    async def _heartbeat(self, attempt: Attempt) -> None:
        """Returns when the token is stale."""
        delivery = attempt.delivery
        while True:
            await self._clock.sleep(self._period_ns(attempt))
            try:
                await self._reports.heartbeat(delivery.run_id, delivery.token)
            except (Conflict, NotFound):
                _log_stale(delivery)
                return
            except Exception as error:  # noqa: BLE001 - the run works on, whatever its client raises
                _log_failure("heartbeat.failed", delivery, error)

    async def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        delivery = attempt.delivery
        for _ in range(REPORTS):
            try:
                await self._send_report(attempt, outcome)
            except (Conflict, NotFound):
                _log_stale(delivery)
            except Exception as error:  # noqa: BLE001 - another one may be heard
                _log_failure("report.failed", delivery, error)
                await self._clock.sleep(self._period_ns(attempt))
                continue
            return
        detail = f"the outcome of {delivery.run_id} could not be reported; the run will time out"
        log.write(logging.ERROR, "report.lost", detail, {"run_id": delivery.run_id})

    async def _send_report(self, attempt: Attempt, outcome: Outcome) -> None:
        run_id, token = attempt.delivery.run_id, attempt.delivery.token
        match outcome:
            case Succeeded():
                await self._reports.complete(run_id, token)
            case Failed():
                await self._reports.fail(run_id, token, outcome.error)
            case Rejected() | Gone():
                await self._reports.fail(run_id, token, outcome.error, retry=False)
            case Accepted():
                raise AssertionError("an attempt does not end as accepted")
            case never:
                assert_never(never)

    def _period_ns(self, attempt: Attempt) -> int:
        timeout_us = attempt.delivery.timeout_us or self._config.timeout_ms * 1_000
        return timeout_us * 1_000 // HEARTBEATS


def _log_stale(delivery: Delivery) -> None:
    detail = f"{delivery.run_id} has a later attempt, or has ended"
    fields = {"run_id": delivery.run_id, "token": delivery.token}
    log.write(logging.WARNING, "run.stale", detail, fields)


def _log_failure(event: str, delivery: Delivery, error: Exception) -> None:
    detail = f"{delivery.run_id}: {_shown(error)}"
    fields = {"run_id": delivery.run_id, "error": _shown(error)}
    log.write(logging.WARNING, event, detail, fields)


def _shown(error: Exception) -> str:
    """An error of the API says enough by its message; of another, nobody knows."""
    return str(error) if isinstance(error, ApiError) else repr(error)
