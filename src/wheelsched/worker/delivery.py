"""Reads the runs of a verified request, and defines `Run`, which handlers receive.

Invariant: every field of a run is signed, except its trace. In a request with one run, the key is
the `webhook-id`, and the headers have a signature of their own. In a request with several runs, the
keys are in the body, and the `webhook-id` is derived from exactly these runs. So a
request of one kind cannot be turned into the other.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from wheelsched.core.model import Trigger
from wheelsched.errors import InvalidCallback, TransactionMissing
from wheelsched.values.duration import MILLISECOND
from wheelsched.wire.callback import (
    ATTEMPT,
    FENCING_TOKEN,
    JOB_ID,
    JOB_NAME,
    RUN_ID,
    SCHEDULED_AT,
    TIMEOUT_MS,
    TRACEPARENT,
    TRIGGER,
    BatchElement,
    batch_key,
    decode_elements,
    read_instant,
    read_name,
)

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
else:
    Connection = Any

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Delivery(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of one run."""

    run_id: str
    job_id: UUID
    job_name: str
    scheduled_us: int
    attempt: int  # from 1
    token: int  # a later attempt of a run has a greater one
    idempotency_key: str
    trigger: Trigger
    payload: Raw
    traceparent: str | None = None
    timeout_us: int | None = None  # of the response; after acceptance, between two heartbeats
    is_batched: bool = False
    queue: str | None = None  # of a run that was pulled

    @property
    def scheduled_at(self) -> datetime:
        """The due time of the run, in UTC."""
        return _EPOCH + timedelta(microseconds=self.scheduled_us)


class Run(Delivery, frozen=True, kw_only=True, gc=True):
    """The run that a handler receives beside its payload."""

    transaction: Connection | None = None
    acceptance: Callable[[], None] | None = None

    @property
    def connection(self) -> Connection:
        """The connection whose transaction marks this run as done.

        Writes on it take effect exactly once, however often the run is delivered.
        """
        if self.transaction is None:
            raise TransactionMissing
        return self.transaction

    def accept(self) -> None:
        """Respond with 202 now. Heartbeats keep the run alive, and its outcome is reported."""
        if self.acceptance is not None:
            self.acceptance()


def read_request(
    headers: Mapping[str, str], body: bytes, webhook_id: str
) -> Delivery | list[Delivery]:
    """The run or the batch of runs in a request. Raises `InvalidCallback` if it has neither."""
    try:
        if RUN_ID in headers:
            return _read_single(headers, body, webhook_id)
        return _read_batch(headers, body, webhook_id)
    except KeyError as error:
        raise InvalidCallback(f"missing header {error}") from error
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise InvalidCallback(f"{InvalidCallback.__doc__}: {error}") from error


def _read_single(headers: Mapping[str, str], body: bytes, webhook_id: str) -> Delivery:
    return Delivery(
        run_id=headers[RUN_ID],
        job_id=UUID(headers[JOB_ID]),
        job_name=read_name(headers[JOB_NAME]),
        scheduled_us=read_instant(headers[SCHEDULED_AT]),
        attempt=int(headers[ATTEMPT]),
        token=int(headers[FENCING_TOKEN]),
        idempotency_key=webhook_id,
        trigger=Trigger(headers[TRIGGER]),
        payload=Raw(body),
        traceparent=headers.get(TRACEPARENT),
        timeout_us=int(headers[TIMEOUT_MS]) * MILLISECOND if TIMEOUT_MS in headers else None,
    )


def _read_batch(headers: Mapping[str, str], body: bytes, webhook_id: str) -> list[Delivery]:
    elements = decode_elements(body)
    if batch_key(element.run_id for element in elements) != webhook_id:
        raise InvalidCallback("webhook-id does not match the runs in the body")
    return [_read_element(element, headers.get(TRACEPARENT)) for element in elements]


def _read_element(element: BatchElement, traceparent: str | None) -> Delivery:
    return Delivery(
        run_id=element.run_id,
        job_id=element.job_id,
        job_name=element.job_name,
        scheduled_us=read_instant(element.scheduled_at),
        attempt=element.attempt,
        token=element.fencing_token,
        idempotency_key=element.idempotency_key,
        trigger=element.trigger,
        payload=element.payload,
        traceparent=traceparent,
        timeout_us=None if element.timeout_ms is None else element.timeout_ms * MILLISECOND,
        is_batched=True,
    )
