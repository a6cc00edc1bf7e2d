"""Reads the unary requests of workers.

Invariant: an invalid field raises `InvalidField` with its name and what would be right.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from wheelsched.core.targets.queue import check_queue
from wheelsched.errors import FieldOutOfRange, InvalidField, UnknownChoice, quoted
from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.values.duration import MILLISECOND
from wheelsched.wire.queue import (
    MAX_ITEMS,
    MAX_QUEUES,
    MAX_WAIT_US,
    HeartbeatItem,
    OutcomeItem,
    ReturnedItem,
    read_lease,
)

SUCCEEDED: Final = "SUCCEEDED"
FAILED: Final = "FAILED"
RUNNING: Final = "RUNNING"
RETURNED: Final = "RETURNED"
MAX_LABEL: Final = 255
MAX_TOKEN: Final = 2**63 - 1
MAX_DIGITS: Final = len(str(MAX_TOKEN))

Read = TypeVar("Read", bound=Message)


class ReturnedRun(Struct, frozen=True, kw_only=True):
    """A run that is given back, and the claim that it belongs to."""

    item: ReturnedItem
    worker_id: str
    claim_id: str


def parse(read: Callable[[bytes], Read], data: bytes, name: str) -> Read:
    """A message, or `InvalidField`."""
    try:
        return read(data)
    except DecodeError:
        raise InvalidField(f"expected a message of type wheelsched.v1.{name}") from None


def check_range(value: int, low: int, high: int, *, field: str) -> int:
    """The value, or `FieldOutOfRange`."""
    if not low <= value <= high:
        raise FieldOutOfRange(f"{value:,} is not between {low:,} and {high:,}", pointer=field)
    return value


def check_label(text: str, *, field: str, is_required: bool = True) -> str:
    """A name that the worker has chosen, or `InvalidField`."""
    if len(text) > MAX_LABEL or (is_required and not text):
        raise InvalidField(f"expected 1 to {MAX_LABEL} characters", pointer=field)
    return text


def read_queue_names(names: Sequence[str], *, field: str = "queues") -> tuple[str, ...]:
    """The queues of a request, sorted, or `InvalidField`."""
    if not 1 <= len(names) <= MAX_QUEUES:
        raise InvalidField(
            f"expected 1 to {MAX_QUEUES} names of queues, got {len(names):,}", pointer=field
        )
    found = {check_queue(name, pointer=f"{field}[{index}]") for index, name in enumerate(names)}
    return tuple(sorted(found))


def read_seconds(seconds: int, *, field: str) -> str | None:
    """A lease as in JSON; 0 is none."""
    if seconds < 0:
        raise FieldOutOfRange("a lease must be from 5s to 30d", pointer=field)
    lease = f"{seconds}s" if seconds else None
    read_lease(lease, pointer=field)
    return lease


def read_max_tasks(request: pb.ClaimTriggersRequest) -> int:
    """How many runs a claim asks for; 0 is 1."""
    return check_range(request.max_tasks or 1, 1, MAX_ITEMS, field="max_tasks")


def read_wait_us(request: pb.ClaimTriggersRequest) -> int:
    """How long a claim may wait."""
    return MILLISECOND * check_range(
        request.wait_ms, 0, MAX_WAIT_US // MILLISECOND, field="wait_ms"
    )


def read_attempt_id(text: str, *, field: str = "attempt_id") -> tuple[str, int]:
    """The run id and the fencing token of an attempt. The run id is not checked."""
    run_id, _, token = text.rpartition(":")
    is_number = token.isascii() and token.isdigit() and len(token) <= MAX_DIGITS
    if not 0 < len(run_id) <= MAX_LABEL or not is_number or int(token) > MAX_TOKEN:
        raise InvalidField(
            f"{quoted(text)} is not a valid attempt id; send the attempt_id of the task",
            pointer=field,
        )
    return run_id, int(token)


def read_update(request: pb.UpdateAttemptRequest) -> OutcomeItem | HeartbeatItem | ReturnedRun:
    """What a worker reports about one attempt."""
    run_id, token = read_attempt_id(request.attempt_id)
    if request.trigger_id and request.trigger_id != run_id:
        raise InvalidField(
            f"{quoted(request.trigger_id)} is not the run of this attempt; leave it empty or send "
            "the trigger_id of the task",
            pointer="trigger_id",
        )
    if request.status == RUNNING:
        field = "lease_duration_seconds"
        lease = read_seconds(request.lease_duration_seconds, field=field)
        return HeartbeatItem(run_id=run_id, token=token, lease=lease)
    if request.status == RETURNED:
        return ReturnedRun(
            item=ReturnedItem(run_id=run_id, token=token),
            worker_id=check_label(request.worker_id, field="worker_id"),
            claim_id=check_label(request.claim_id, field="claim_id"),
        )
    if request.status not in (SUCCEEDED, FAILED):
        raise UnknownChoice(
            f"{quoted(request.status)} is not valid; expected {SUCCEEDED}, {FAILED}, {RUNNING} or "
            f"{RETURNED}",
            pointer="status",
        )
    return OutcomeItem(
        run_id=run_id,
        token=token,
        ok=request.status == SUCCEEDED,
        error=request.error_message,
        retry=not request.no_retry,
        retry_after=read_retry_after(request.retry_after_ms),
        too_early=request.too_early,
        gone=request.gone,
    )


def read_retry_after(milliseconds: int, *, field: str = "retry_after_ms") -> str | None:
    """A wait as in JSON; 0 is none."""
    if milliseconds < 0:
        raise FieldOutOfRange("must not be negative", pointer=field)
    return f"{milliseconds}ms" if milliseconds else None
