"""Writes runs that are handed out as protobuf messages.

Invariant: a message has about the size of the JSON that the shard has prepared for its run, so the
limits of messages count that.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from wheelsched.ports.work import QueueRun
from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.values.duration import MILLISECOND, SECOND
from wheelsched.wire.stream import MAX_FRAME_BYTES

# Clients accept messages of 4 MiB unless they are configured otherwise.
MAX_CLAIM_BYTES: Final = 3 << 20


class _Content(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a run that do not follow from its attempt and its queue."""

    run_id: str
    job_id: str
    job_name: str
    attempt: int
    idempotency_key: str
    trigger: str
    timeout_ms: int
    payload: Raw
    traceparent: str = ""


_decode: Final = msgspec.json.Decoder(_Content).decode


def task_of(run: QueueRun, tenant_id: str, expires_ms: int) -> pb.TaskPayload:
    """The message of one run."""
    content = _decode(run.content + b"}")
    due_us = run.attempt.key.due_us
    token = run.attempt.token
    return pb.TaskPayload(
        trigger_id=content.run_id,
        job_id=content.job_id,
        tenant_id=tenant_id,
        job_type=run.queue,
        payload_json=bytes(content.payload).decode(),
        scheduled_time_epoch=due_us // SECOND,
        attempt_id=f"{content.run_id}:{token}",
        job_name=content.job_name,
        attempt=content.attempt,
        fencing_token=token,
        idempotency_key=content.idempotency_key,
        trigger=content.trigger,
        timeout_ms=content.timeout_ms,
        scheduled_time_ms=due_us // MILLISECOND,
        lease_expires_ms=expires_ms,
        traceparent=content.traceparent,
    )


def tasks_of(runs: Sequence[QueueRun], tenant_id: UUID, expires_us: int) -> list[pb.TaskPayload]:
    """The messages of runs."""
    tenant, expires_ms = str(tenant_id), expires_us // MILLISECOND
    return [task_of(run, tenant, expires_ms) for run in runs]


def run_messages(
    runs: Sequence[QueueRun], tenant_id: UUID, expires_us: int
) -> Iterator[pb.SchedulerMessage]:
    """Messages of the stream with these runs, each of limited size."""
    begin = size = 0
    for end, run in enumerate(runs):
        if end > begin and size + len(run.content) > MAX_FRAME_BYTES:
            yield _runs_message(runs[begin:end], tenant_id, expires_us)
            begin, size = end, 0
        size += len(run.content)
    yield _runs_message(runs[begin:], tenant_id, expires_us)


def _runs_message(
    runs: Sequence[QueueRun], tenant_id: UUID, expires_us: int
) -> pb.SchedulerMessage:
    return pb.SchedulerMessage(runs=pb.Runs(tasks=tasks_of(runs, tenant_id, expires_us)))
