"""Under every stage: jobs and runs as rows, and back.

Invariant: what was written comes back equal, and payload and schedule byte for byte.
"""

import asyncpg
import msgspec
from msgspec import Raw, Struct

from wheelsched.core.model import (
    DRAFT_STATES,
    Draft,
    Job,
    JobState,
    Lane,
    Run,
    RunState,
    SkipReason,
    Target,
    Trigger,
)
from wheelsched.core.policy import MisfirePolicy, OverlapPolicy, RetryPolicy
from wheelsched.core.spec import Spec

Row = asyncpg.Record


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The part of a job that only its shard and its author read: one JSON document."""

    schedule: Raw
    spec: Spec
    anchor_us: int
    target: Target
    payload: Raw
    misfire: MisfirePolicy
    overlap: OverlapPolicy
    retry: RetryPolicy
    timeout_us: int
    priority: int
    idempotency_key: str


DECODER = msgspec.json.Decoder(Definition)
ENCODER = msgspec.json.Encoder()
TAGS = msgspec.json.Decoder(dict[str, str])


def encode_definition(job: Job) -> bytes:
    """The JSON document of a job."""
    return ENCODER.encode(
        Definition(
            schedule=job.schedule,
            spec=job.spec,
            anchor_us=job.anchor_us,
            target=job.target,
            payload=job.payload,
            misfire=job.misfire,
            overlap=job.overlap,
            retry=job.retry,
            timeout_us=job.timeout_us,
            priority=job.priority,
            idempotency_key=job.idempotency_key,
        )
    )


def encode_tags(job: Job) -> str:
    """The tags, in a column of their own because they can be searched."""
    return ENCODER.encode(job.tags).decode()


def decode_job(row: Row) -> Job:
    """A job from its row."""
    definition = DECODER.decode(row["definition"])
    return Job(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        tags=TAGS.decode(row["tags"]),
        state=JobState(row["state"]),
        version=row["version"],
        created_at_us=row["created_at"],
        updated_at_us=row["updated_at"],
        paused_at_us=row["paused_at"],
        schedule=definition.schedule,
        spec=definition.spec,
        anchor_us=definition.anchor_us,
        target=definition.target,
        payload=definition.payload,
        misfire=definition.misfire,
        overlap=definition.overlap,
        retry=definition.retry,
        timeout_us=definition.timeout_us,
        priority=definition.priority,
        idempotency_key=definition.idempotency_key,
    )


def decode_draft(row: Row) -> Draft:
    """A job that is not planned, from its row."""
    return Draft(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        document=Raw(row["definition"]),
        state=JobState(row["state"]),
        version=row["version"],
        created_at_us=row["created_at"],
        updated_at_us=row["updated_at"],
        error=row["error"],
    )


def decode_either(row: Row) -> Job | Draft:
    """A job, or its draft, from its row."""
    return decode_draft(row) if row["state"] in DRAFT_STATES else decode_job(row)


def decode_run(row: Row) -> Run:
    """A run from its row."""
    reason = row["skip_reason"]
    return Run(
        job_id=row["job_id"],
        due_us=row["due_at"],
        tenant_id=row["tenant_id"],
        state=RunState(row["state"]),
        trigger=Trigger(row["trigger"]),
        lane=Lane(row["lane"]),
        backfill_of_us=row["backfill_of"],
        attempt=row["attempt"],
        attempts_before=row["attempts_before"],
        retry_at_us=row["retry_at"],
        armed_at_us=row["armed_at"],
        started_at_us=row["started_at"],
        finished_at_us=row["finished_at"],
        lateness_us=row["lateness_us"],
        http_status=row["http_status"],
        error=row["error"],
        skip_reason=None if reason is None else SkipReason(reason),
        missed_count=row["missed_count"],
        missed_since_us=row["missed_since"],
        shard=row["shard"],
        token=row["token"],
    )
