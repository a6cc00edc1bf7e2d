"""An attempt on the worker's side: from its delivery to its outcome.

Invariant: whatever happens is an outcome, and a run that is no success left no note that it is
done. Only a cancellation that nobody gave a reason for comes out as one, and Ctrl-C: what else a
handler raises, `sys.exit()` too, is its attempt's end and not the worker's.

    decode the payload ─► check the token ─► claim the key ─► call the handler ─► note and commit
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from wheelsched import errors
from wheelsched.core.duration import SECOND
from wheelsched.core.outcome import MAX_ERROR_LENGTH, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.ports import Clock
from wheelsched.worker import log
from wheelsched.worker.deduplication import Deduplication
from wheelsched.worker.delivery import Delivery, Run
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.handler import Handler

FAILED: Final = 500
NO_HANDLER: Final = 501  # retried: another instance, or the next release, may have it
TOO_EARLY: Final = 425
UNAVAILABLE: Final = 503

IN_PROGRESS: Final = Failed(
    error=errors.RunInProgress.__doc__ or "", http_status=TOO_EARLY, retry_after_us=SECOND
)

MAX_AFTER_S: Final = 86_400.0  # no scheduler waits longer


class Equipment(Struct, frozen=True):
    """What all attempts of a worker share."""

    deduplicate: Deduplication
    fencing: FencingCheck
    threads: Executor
    clock: Clock


class Attempt:
    """One attempt; it begins when it is made. Whoever makes it owns its task."""

    def __init__(
        self,
        delivery: Delivery,
        handler: Handler | None,
        equipment: Equipment,
        admit: Callable[["Attempt"], None],
    ) -> None:
        self.delivery = delivery
        self._handler = handler
        self._equipment = equipment
        self._admit = admit
        self._reason: str | None = None
        self._loop = asyncio.get_running_loop()
        self.accepted: asyncio.Future[None] = self._loop.create_future()
        self.task = asyncio.create_task(self._outcome(), name=f"run {delivery.run_id}")

    def accept(self) -> None:
        """Lets the request be answered with 202 while the attempt goes on. From any thread."""
        self._admit(self)
        self._loop.call_soon_threadsafe(self._note_accepted)

    def cancel(self, reason: str) -> None:
        """Ends the attempt as a failure that says why."""
        self._reason = reason
        self.task.cancel()

    def _note_accepted(self) -> None:
        if not self.accepted.done():
            self.accepted.set_result(None)

    async def _outcome(self) -> Outcome:
        try:
            return await self._perform()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._reason is None and task is not None and task.cancelling():
                raise
            error = self._reason or "the handler was cancelled"
            return Failed(error=error, http_status=UNAVAILABLE)
        except KeyboardInterrupt:  # on the loop it is Ctrl-C; threads never get one
            raise
        except GeneratorExit as error:
            if not self._is_running():  # the task is thrown away, and not the handler's word
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
        handler, delivery = self._handler, self.delivery
        if handler is None:
            error = f"this worker has no handler for job {errors.quoted(delivery.job_name)}"
            return Failed(error=error, http_status=NO_HANDLER)
        payload = handler.decode(bytes(delivery.payload))
        self._equipment.fencing.check(delivery.run_id, delivery.token)
        async with self._equipment.deduplicate.once(_key(delivery)) as claim:
            if not claim.is_first:
                detail = f"{delivery.run_id} is done already"
                fields = {"run_id": delivery.run_id, "attempt": delivery.attempt}
                log.write(logging.DEBUG, "run.repeated", detail, fields)
                return Succeeded()
            if handler.is_long:
                self.accept()
            run = Run(**asdict(delivery), transaction=claim.connection, acceptance=self.accept)
            await handler.call(payload, run, self._equipment.threads)
        return Succeeded()

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
                return Failed(error=message, http_status=TOO_EARLY)
        named = _shown(f"{type(error).__name__}: {message}")
        self._log_failure(error, named)
        return Failed(error=named, http_status=FAILED)

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
        return _shown(str(error))
    except Exception:  # noqa: BLE001 - a class of the user's own, whose message is broken
        return "the error has no message that can be shown"


def _shown(message: str) -> str:
    """A message that a history can keep: bounded, no NUL, no half characters."""
    message = message[:MAX_ERROR_LENGTH].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return message.encode("utf-8", "replace").decode("utf-8")


def _key(delivery: Delivery) -> str:
    """Of two jobs whose templates render the same key, each has its own effect."""
    return f"{delivery.job_id}/{delivery.idempotency_key}"
