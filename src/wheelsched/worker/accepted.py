"""Runs that were answered with 202 and continue in the background.

Invariant: a run sends heartbeats while it executes, and its outcome is reported when it ends. If
its token is stale, the run is cancelled and nothing is reported. The number of runs is bounded.
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

HEARTBEATS: Final = 3  # per timeout, so two may be lost
REPORTS: Final = 3  # attempts to report, one period apart; after that the run times out anyway


class Reports(Protocol):
    """Reports on runs by REST. `wheelsched.client.Client` implements it.

    Each method raises `Conflict` if a later attempt has begun or the run has ended, and another
    `ApiError` if the report failed.
    """

    async def heartbeat(self, run_id: str, token: int) -> object:
        """Report that the run is still executing."""

    async def complete(self, run_id: str, token: int) -> object:
        """Report that the run succeeded."""

    async def fail(self, run_id: str, token: int, error: str, *, retry: bool = True) -> object:
        """Report that the attempt failed. Without `retry` the run is dead."""


class AcceptedRuns:
    """Owns a task for each accepted run."""

    def __init__(self, reports: Reports, clock: Clock, config: WorkerConfig) -> None:
        self._reports = reports
        self._clock = clock
        self._config = config
        self._admitted: set[Attempt] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, attempt: Attempt) -> None:
        """Reserve capacity for a run, or raise `RetryLater` if there is none."""
        if attempt not in self._admitted and len(self._admitted) >= self._config.max_accepted:
            raise RetryLater(message="the worker has reached its limit of accepted runs")
        self._admitted.add(attempt)

    def release(self, attempt: Attempt) -> None:
        """Release the capacity of a run that ended or was cancelled before the response."""
        self._admitted.discard(attempt)

    def follow(self, attempt: Attempt) -> None:
        """Send heartbeats for an accepted run until it ends, and report its outcome."""
        task = asyncio.create_task(self._follow(attempt), name=f"follow {attempt.delivery.run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, timeout_s: float) -> None:
        """Wait until all outcomes are reported. The caller has ended the runs."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _follow(self, attempt: Attempt) -> None:
        heartbeats = asyncio.create_task(self._heartbeat(attempt))
        try:
            await asyncio.wait([attempt.task, heartbeats], return_when=asyncio.FIRST_COMPLETED)
            if heartbeats.done():
                attempt.cancel("the run has a later attempt, or has ended")
                await asyncio.wait([attempt.task])
                return
            heartbeats.cancel()
            await self._report(attempt, attempt.task.result())
        finally:
            heartbeats.cancel()
            self._admitted.discard(attempt)

    async def _heartbeat(self, attempt: Attempt) -> None:
        """Send heartbeats until the token is stale."""
        delivery = attempt.delivery
        while True:
            await self._clock.sleep(self._period_ns(attempt))
            try:
                await self._reports.heartbeat(delivery.run_id, delivery.token)
            except (Conflict, NotFound):
                _log_stale(delivery)
                return
            except Exception as error:  # noqa: BLE001 - the run continues, whatever the client raises
                _log_failure("heartbeat.failed", delivery, error)

    async def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        delivery = attempt.delivery
        for _ in range(REPORTS):
            try:
                await self._send_report(attempt, outcome)
            except (Conflict, NotFound):
                _log_stale(delivery)
            except Exception as error:  # noqa: BLE001 - the next report may succeed
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
                raise AssertionError("an attempt cannot end as accepted")
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
    detail = f"{delivery.run_id}: {_describe(error)}"
    fields = {"run_id": delivery.run_id, "error": _describe(error)}
    log.write(logging.WARNING, event, detail, fields)


def _describe(error: Exception) -> str:
    """The message of an API error is enough; another error also needs its type."""
    return str(error) if isinstance(error, ApiError) else repr(error)
