"""Helpers for testing handlers: signed callbacks and pulled runs without a scheduler.

Invariant: what is delivered here is read, verified and performed exactly like a real one.
"""

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, TypeAlias, TypedDict, Unpack
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.core.model import RunKey, Trigger, format_run_id
from wheelsched.core.outcome import (
    Accepted,
    Failed,
    Gone,
    Outcome,
    Rejected,
    Succeeded,
    classify,
)
from wheelsched.ports.work import DELIVERY_LEASE_US
from wheelsched.values.duration import SECOND, parse_duration
from wheelsched.wire import callback as wire
from wheelsched.wire.queue import ClaimedRun
from wheelsched.wire.secret import read_secret
from wheelsched.worker.pull.hands import Hands
from wheelsched.worker.receiver import Receiver
from wheelsched.worker.signature import sign

Verdict: TypeAlias = Literal["succeeded", "accepted", "failed", "rejected", "gone"]

_NAMESPACE: Final = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # object identifiers, RFC 9562
_VERDICTS: Final[dict[type[Outcome], Verdict]] = {
    Succeeded: "succeeded",
    Accepted: "accepted",
    Failed: "failed",
    Rejected: "rejected",
    Gone: "gone",
}
_numbers: Final = itertools.count()


class SignedCallback(Struct, frozen=True):
    """A request as a worker receives it."""

    headers: dict[str, str]
    body: bytes


class Delivered(Struct, frozen=True, kw_only=True):
    """The outcome of a callback, as the scheduler interprets the response."""

    outcome: Verdict
    status: int
    error: str = ""  # what the handler raised, or why the callback was refused
    retry_after_s: int | None = None


class HandedOut(Struct, frozen=True, kw_only=True):
    """The outcome of a run that a worker pulled."""

    outcome: Verdict
    error: str = ""  # what the handler raised
    retry_after_s: int | None = None


class CallbackOptions(TypedDict, total=False):
    """Options for the run of a callback.

    Every callback is a new run, unless `scheduled_at` is given: the same job and the same time are
    the same run, with the same idempotency key.
    """

    scheduled_at: datetime
    attempt: int  # 1 by default
    timeout_s: float  # 120 by default


def sign_callback(
    job_name: str, payload: object = None, *, secret: str, **options: Unpack[CallbackOptions]
) -> SignedCallback:
    """Create a signed callback of one run. Send it at once: its timestamp expires."""
    return _sign_callback(job_name, payload, secret, SystemClock.wall_us(), options)


class TestClient:
    """Delivers runs to a worker in the same process: `worker.test_client()`."""

    __test__ = False  # pytest would collect a class of this name

    def __init__(
        self,
        receiver: Receiver,
        make_hands: Callable[[int], Hands],
        secret: str,
        wall_us: Callable[[], int],
    ) -> None:
        self._receiver = receiver
        self._make_hands = make_hands
        self._secret = secret
        self._wall_us = wall_us

    async def deliver(
        self, job_name: str, payload: object = None, **options: Unpack[CallbackOptions]
    ) -> Delivered:
        """Deliver a run to the handler of its job. See `CallbackOptions`."""
        callback = _sign_callback(job_name, payload, self._secret, self._wall_us(), options)
        answer = await self._receiver.receive(callback.headers, callback.body)
        outcome = classify(answer.status, now_us=self._wall_us())
        return Delivered(
            outcome=_VERDICTS[type(outcome)],
            status=answer.status,
            error=answer.body.decode(),
            retry_after_s=answer.retry_after_s,
        )

    async def hand_out(
        self,
        job_name: str,
        payload: object = None,
        *,
        queue: str = "test",
        **options: Unpack[CallbackOptions],
    ) -> HandedOut:
        """Hand a run of a queue to the handler of its job, as `Worker.run` does.

        See `CallbackOptions`.
        """
        run = _claimed_run(job_name, payload, queue, self._wall_us(), options)
        hands = self._make_hands(1)
        hands.take([run])
        while not (outcomes := hands.take_outcomes()[1]):
            hands.changed.clear()
            await hands.changed.wait()
        (item,) = outcomes
        if item.ok:
            return HandedOut(outcome="succeeded")
        after_us = None if item.retry_after is None else parse_duration(item.retry_after)
        failed: Verdict = "failed" if item.retry else "rejected"
        return HandedOut(
            outcome="gone" if item.gone else failed,
            error=item.error,
            retry_after_s=None if after_us is None else after_us // SECOND,
        )


def _claimed_run(
    job_name: str, payload: object, queue: str, now_us: int, options: CallbackOptions
) -> ClaimedRun:
    described = _describe_run(job_name, now_us, options)
    fields = {
        "run_id": described[wire.RUN_ID],
        "job_id": described[wire.JOB_ID],
        "job_name": job_name,
        "queue": queue,
        "scheduled_at": described[wire.SCHEDULED_AT],
        "attempt": int(described[wire.ATTEMPT]),
        "fencing_token": int(described[wire.FENCING_TOKEN]),
        "idempotency_key": described[wire.WEBHOOK_ID],
        "trigger": described[wire.TRIGGER],
        "timeout_ms": int(described[wire.TIMEOUT_MS]),
        "lease_expires_at": wire.write_instant(now_us + DELIVERY_LEASE_US),
        "payload": payload,
    }
    return msgspec.json.decode(msgspec.json.encode(fields), type=ClaimedRun)


def _sign_callback(
    job_name: str, payload: object, secret: str, now_us: int, options: CallbackOptions
) -> SignedCallback:
    body = msgspec.json.encode(payload)
    headers = _describe_run(job_name, now_us, options)
    head = f"{headers[wire.WEBHOOK_ID]}.{now_us // SECOND}."
    values = "\n".join(headers[name] for name in wire.SIGNED)
    key = read_secret(secret)
    headers[wire.WEBHOOK_TIMESTAMP] = str(now_us // SECOND)
    headers[wire.WEBHOOK_SIGNATURE] = sign(key, head.encode() + body)
    headers[wire.SIGNATURE] = sign(key, (head + values).encode())
    return SignedCallback(headers, body)


def _describe_run(job_name: str, now_us: int, options: CallbackOptions) -> dict[str, str]:
    if "scheduled_at" in options:
        scheduled_us = wire.read_instant(options["scheduled_at"].isoformat())
    else:
        scheduled_us = now_us + next(_numbers)
    attempt = options.get("attempt", 1)
    job_id = uuid5(_NAMESPACE, job_name)
    idempotency_key = f"{job_id}:{scheduled_us}"
    return {
        "content-type": "application/json",
        wire.IDEMPOTENCY_KEY.lower(): idempotency_key,
        wire.WEBHOOK_ID: idempotency_key,
        wire.RUN_ID: format_run_id(RunKey(job_id, scheduled_us)),
        wire.JOB_ID: str(job_id),
        wire.JOB_NAME: wire.write_name(job_name),
        wire.SCHEDULED_AT: wire.write_instant(scheduled_us),
        wire.ATTEMPT: str(attempt),
        wire.FENCING_TOKEN: str(attempt),  # a later attempt has a greater one
        wire.TRIGGER: Trigger.SCHEDULE.value,
        wire.TIMEOUT_MS: str(int(options.get("timeout_s", 120) * 1_000)),
    }
