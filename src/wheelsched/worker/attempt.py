"""Performs one attempt in the worker, from its delivery to its outcome.

Invariant: every attempt has an outcome, and only a successful run marks its key as done. Whatever a
handler raises, even `sys.exit()`, ends its attempt and not the worker. Only Ctrl-C and a
cancellation of the task itself propagate.

    claim the key ─► check the token ─► decode the payload ─► call the handler ─► commit the key

Deduplication comes before fencing: a run that is done is answered as done, whatever the token of
the request. A sender with a stale token may be the only one that the database still knows.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct, to_builtins

from wheelsched import errors
from wheelsched.core.outcome import MAX_ERROR_LENGTH, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.ports import Clock
from wheelsched.values.duration import SECOND
from wheelsched.worker import log
from wheelsched.worker.deduplication import Claim, Deduplication
from wheelsched.worker.delivery import Delivery, Run
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.handler import Handler

FAILED: Final = 500
NO_HANDLER: Final = 501  # retried, because another instance or the next release may have one
TOO_EARLY: Final = 425
UNAVAILABLE: Final = 503

SUCCEEDED: Final = Succeeded()

# Neither has called the handler. The scheduler retries them even after the last attempt of the run.
IN_PROGRESS: Final = Failed(
    error=errors.RunInProgress.__doc__ or "", http_status=TOO_EARLY, retry_after_us=SECOND
)
OVERTAKEN: Final = Failed(error=errors.AttemptOvertaken.__doc__ or "", http_status=TOO_EARLY)

MAX_AFTER_S: Final = 86_400.0  # the scheduler does not wait longer


class Resources(Struct, frozen=True):
    """The resources that all attempts of a worker share."""

    deduplicate: Deduplication
    fencing: FencingCheck
    threads: Executor
    clock: Clock


class Attempt:
    """One attempt. It starts when it is created, and the creator owns its task."""

    __slots__ = (
        "_accepted",
        "_admit",
        "_handler",
        "_is_accepted",
        "_loop",
        "_reason",
        "_resources",
        "delivery",
        "task",
    )

    def __init__(
        self,
        delivery: Delivery,
        handler: Handler | None,
        resources: Resources,
        admit: Callable[["Attempt"], None],
    ) -> None:
        self.delivery = delivery
        self._handler = handler
        self._resources = resources
        self._admit = admit
        self._reason: str | None = None
        self._loop = asyncio.get_running_loop()
        self._accepted: asyncio.Future[None] | None = None
        self._is_accepted = False
        self.task = self._loop.create_task(self._outcome(), name=delivery.run_id)

    @property
    def accepted(self) -> asyncio.Future[None]:
        """Done when the attempt was accepted."""
        if self._accepted is None:
            self._accepted = self._loop.create_future()
            if self._is_accepted:
                self._accepted.set_result(None)
        return self._accepted

    def accept(self) -> None:
        """Answer the request with 202 while the attempt continues. Callable from any thread."""
        self._admit(self)
        self._loop.call_soon_threadsafe(self._mark_accepted)

    def cancel(self, reason: str) -> None:
        """Cancel the attempt. Its outcome is a failure with this reason."""
        self._reason = reason
        self.task.cancel()

    def _mark_accepted(self) -> None:
        self._is_accepted = True
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(None)

    async def _outcome(self) -> Outcome:
        try:
            return await self._perform()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._reason is None and task is not None and task.cancelling():
                raise
            error = self._reason or "the handler was cancelled"
            return Failed(error=error, http_status=UNAVAILABLE)
        except KeyboardInterrupt:  # Ctrl-C reaches the loop, never a handler's thread
            raise
        except GeneratorExit as error:
            if not self._is_running():  # the task itself is being destroyed
                raise
            return self._failure(error)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            return self._failure(error)

    def _is_running(self) -> bool:
        try:
            return asyncio.current_task() is self.task
        except RuntimeError:  # no loop runs
            return False

    async def _perform(self) -> Outcome:
        """The steps at the top. One coroutine, because each further one costs every run."""
        handler, delivery, resources = self._handler, self.delivery, self._resources
        if handler is None:
            error = f"this worker has no handler for job {errors.quoted(delivery.job_name)}"
            return Failed(error=error, http_status=NO_HANDLER)
        fencing = resources.fencing
        fencing.record(delivery.run_id, delivery.token)
        try:
            async with resources.deduplicate.once(_key(delivery)) as claim:
                if not claim.is_first:
                    self._log_repeated()
                    return SUCCEEDED
                fencing.check(delivery.run_id, delivery.token)
                payload = handler.decode(bytes(delivery.payload))
                if handler.is_long:
                    self.accept()
                run = self._run_of(claim) if handler.takes_run else None
                await handler.call(payload, run, resources.threads)
        except errors.RunInProgress:
            fencing.check(delivery.run_id, delivery.token)  # an overtaken attempt does not wait
            raise
        return SUCCEEDED

    def _run_of(self, claim: Claim) -> Run:
        """The run for the handler. Written out, because `asdict` takes twice as long."""
        delivery = self.delivery
        return Run(
            run_id=delivery.run_id,
            job_id=delivery.job_id,
            job_name=delivery.job_name,
            scheduled_us=delivery.scheduled_us,
            attempt=delivery.attempt,
            token=delivery.token,
            idempotency_key=delivery.idempotency_key,
            trigger=delivery.trigger,
            payload=delivery.payload,
            traceparent=delivery.traceparent,
            timeout_us=delivery.timeout_us,
            is_batched=delivery.is_batched,
            queue=delivery.queue,
            transaction=claim.connection,
            acceptance=self.accept,
        )

    def _failure(self, error: BaseException) -> Outcome:
        message = _message(error)
        match error:
            case errors.Reject() | errors.InvalidPayload():
                return Rejected(error=message)
            case errors.Gone():
                return Gone(error=message)
            case errors.RetryLater():
                after_us = int(min(max(0.0, error.after_s), MAX_AFTER_S) * SECOND)
                return Failed(error=message, http_status=UNAVAILABLE, retry_after_us=after_us)
            case errors.RunInProgress():
                return IN_PROGRESS
            case errors.AttemptOvertaken():
                return OVERTAKEN
        named = _storable(f"{type(error).__name__}: {message}")
        self._log_failure(error, named)
        return Failed(error=named, http_status=FAILED)

    def _log_repeated(self) -> None:
        delivery = self.delivery
        detail = f"{delivery.run_id} was already done"
        fields = {"run_id": delivery.run_id, "attempt": delivery.attempt}
        log.write(logging.DEBUG, "run.repeated", detail, fields)

    def _log_failure(self, error: BaseException, named: str) -> None:
        delivery = self.delivery
        fields = {
            "run_id": delivery.run_id,
            "job_name": delivery.job_name,
            "attempt": delivery.attempt,
            "error": named,
        }
        detail = f"{delivery.run_id} of {errors.quoted(delivery.job_name)}: {named}"
        log.write(logging.ERROR, "run.failed", detail, fields, raised=error)


def _message(error: BaseException) -> str:
    try:
        return _storable(str(error))
    except Exception:  # noqa: BLE001 - a user's class whose __str__ raises
        return "the error has no readable message"


def _storable(message: str) -> str:
    """A message that can be stored: limited in length, without NUL and lone surrogates."""
    message = message[:MAX_ERROR_LENGTH].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return message.encode("utf-8", "replace").decode("utf-8")


def _key(delivery: Delivery) -> str:
    """The job id is part of the key, because the templates of two jobs may render the same text."""
    job_id = to_builtins(delivery.job_id)  # `str` takes eight times as long
    return f"{job_id}/{delivery.idempotency_key}"
