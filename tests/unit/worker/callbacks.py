"""Callbacks like those of the dispatcher, signed by an independent implementation."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import Raw
from standardwebhooks import Webhook

from wheelsched.core.model import RunKey, Trigger, format_run_id
from wheelsched.testing import VirtualClock
from wheelsched.wire.callback import BatchElement, batch_key, write_instant, write_name
from wheelsched.worker import Worker, WorkerConfig
from wheelsched.worker.accepted import Reports
from wheelsched.worker.answer import Answer
from wheelsched.worker.deduplication import Deduplication

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(100, 132))).decode()
NOW_S = 1_794_837_600
# As a worker without the SDK would write them down from the documentation.
SIGNED = (
    *("run-id", "job-id", "job-name", "scheduled-at", "attempt", "fencing-token", "trigger"),
    "timeout-ms",
)
JOB_ID = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")

Request = tuple[dict[str, str], bytes]


def run_id(number: int = 0) -> str:
    return format_run_id(RunKey(JOB_ID, NOW_S * 1_000_000 + number * 1_000))


def signed(
    webhook_id: str, body: bytes, *, at_s: int = NOW_S, secrets: tuple[str, ...] = (SECRET,)
) -> dict[str, str]:
    at = datetime.fromtimestamp(at_s, UTC)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(
            Webhook(secret).sign(webhook_id, at, body.decode()) for secret in secrets
        ),
    }


def signed_values(
    webhook_id: str, headers: Mapping[str, str], *, at_s: int = NOW_S, secret: str = SECRET
) -> dict[str, str]:
    """The signature of the run headers."""
    values = "\n".join(headers.get(f"wheelsched-{name}", "") for name in SIGNED)
    at = datetime.fromtimestamp(at_s, UTC)
    return {"wheelsched-signature": Webhook(secret).sign(webhook_id, at, values)}


def single(
    payload: bytes = b"{}",
    *,
    number: int = 0,
    job_name: str = "report",
    headers: Mapping[str, str] | None = None,
    at_s: int = NOW_S,
) -> Request:
    """A signed request with one run. Its key, id and due time follow from the number."""
    key = f"{JOB_ID}:{number}"
    written = {
        "idempotency-key": key,
        "wheelsched-run-id": run_id(number),
        "wheelsched-job-id": str(JOB_ID),
        "wheelsched-job-name": write_name(job_name),
        "wheelsched-scheduled-at": write_instant(NOW_S * 1_000_000),
        "wheelsched-attempt": "1",
        "wheelsched-fencing-token": "4294967297",
        "wheelsched-trigger": "schedule",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    written |= dict(headers or {})
    return written | signed_values(key, written, at_s=at_s) | signed(
        key, payload, at_s=at_s
    ), payload


def element(
    number: int,
    payload: bytes = b"{}",
    *,
    job_name: str = "report",
    timeout_ms: int | None = None,
) -> BatchElement:
    return BatchElement(
        run_id=run_id(number),
        job_id=JOB_ID,
        job_name=job_name,
        scheduled_at=write_instant(NOW_S * 1_000_000),
        attempt=1,
        fencing_token=4294967297,
        idempotency_key=f"{JOB_ID}:{number}",
        trigger=Trigger.SCHEDULE,
        timeout_ms=timeout_ms,
        payload=Raw(payload),
    )


def batch(*elements: BatchElement) -> Request:
    body = msgspec.json.encode(elements)
    return signed(batch_key(each.run_id for each in elements), body), body


def make_worker(
    *,
    deduplicate: Deduplication | None = None,
    client: Reports | None = None,
    clock: VirtualClock | None = None,
    config: WorkerConfig | None = None,
) -> Worker:
    """A worker whose wall clock matches the requests here."""
    return Worker(
        [SECRET],
        deduplicate=deduplicate,
        client=client,
        config=config,
        clock=clock or VirtualClock(NOW_S * 1_000_000_000),
    )


async def send(worker: Worker, request: Request) -> Answer:
    headers, body = request
    return await worker.receiver.receive(headers, body)
