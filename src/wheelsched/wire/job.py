"""Jobs on the wire: the document that a user writes, and what comes back.

Invariant: these structs say which fields there are and of which type, and refuse any other. What
the text in them must look like is for the core to judge, which knows more to say about it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Final
from uuid import UUID

from msgspec import Meta, Raw, Struct, field

from wheelsched.core.model import JobState

DURATION: Final = Meta(
    description="whole numbers with the units w, d, h, m, s, ms, us, largest first",
    examples=["90s", "1h30m"],
    extra_json_schema={"pattern": r"^(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?(\d+us)?$"},
)
SCHEDULE: Final = Meta(
    description="cron, an ISO-8601 instant for a one-off, `every 5m`, or `RRULE:…`; `in 5m` for a "
    "one-off five minutes from now, stored as its instant; "
    "or an object with one of them, and start, end and exclude",
    examples=[
        "0 9 * * 1",
        "every 5 minutes",
        "in 5m",
        {"every": "5m", "end": "2027-01-01T00:00:00Z"},
    ],
    extra_json_schema={
        "anyOf": [
            {"type": "string", "minLength": 1, "maxLength": 255},
            {
                "type": "object",
                "properties": {
                    **{kind: {"type": "string"} for kind in ("cron", "at", "every", "rrule")},
                    "start": {"type": "string"},
                    "end": {"type": "string"},
                    "exclude": {"type": "array", "items": {"type": "string"}, "maxItems": 128},
                },
                "additionalProperties": False,
            },
        ]
    },
)
NAME: Final = Meta(
    description="unique in the tenant", extra_json_schema={"minLength": 1, "maxLength": 255}
)
WARNINGS: Final = Meta(
    description="where the schedule may not mean what its author meant, e.g. because another "
    "scheduler reads it differently"
)

Duration = Annotated[str, DURATION]


class TargetDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the callbacks go."""

    url: Annotated[str, Meta(examples=["https://example.org/hooks/report"])]
    method: str | None = None
    headers: dict[str, str] | None = None
    batch: int | None = None


class MisfireDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of due times that were missed."""

    policy: str | None = None
    grace: Duration | None = None
    window: Duration | None = None
    max_missed: int | None = None


class OverlapDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a run that finds an earlier one unfinished."""

    policy: str | None = None
    max_concurrent: int | None = None


class RetryDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and when a failed run is tried again."""

    max_attempts: int | None = None
    backoff: str | None = None
    initial: Duration | None = None
    max: Duration | None = None


class DstDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to run for a time that a clock change skips or repeats.

    It does not apply to a schedule that runs at least hourly through the change.
    """

    gap: str | None = None
    overlap: str | None = None


class JobDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as its user writes it. A field written as null is one that is not written."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("cron", "crontab", "expression", "interval"), "schedule"),
        **dict.fromkeys(("every", "at", "rrule", "when", "start", "end"), "schedule"),
        **dict.fromkeys(("tz", "time_zone", "zone"), "timezone"),
        **dict.fromkeys(("url", "endpoint", "webhook", "callback"), "target.url"),
        **{name: f"target.{name}" for name in ("method", "headers", "batch")},
        **dict.fromkeys(("body", "data", "args", "params", "input"), "payload"),
        **dict.fromkeys(("retries", "attempts"), "retry.max_attempts"),
        **{name: f"retry.{name}" for name in ("max_attempts", "backoff")},
        **dict.fromkeys(("concurrency", "max_concurrent"), "overlap.max_concurrent"),
        **{name: f"misfire.{name}" for name in ("grace", "window", "max_missed")},
        "key": "idempotency_key",
        "labels": "tags",
    }

    name: Annotated[str, NAME]
    schedule: Annotated[Raw, SCHEDULE]
    target: TargetDocument
    timezone: str | None = None
    payload: Annotated[Raw, Meta(description="any JSON, sent byte for byte")] = field(
        default_factory=lambda: Raw(b"null")
    )
    misfire: MisfireDocument | None = None
    overlap: OverlapDocument | None = None
    retry: RetryDocument | None = None
    timeout: Duration | None = None
    jitter: Duration | None = None
    priority: int | None = None
    dst: DstDocument | None = None
    idempotency_key: str | None = None
    tags: dict[str, str] | None = None


class JobAnswer(Struct, frozen=True, kw_only=True):
    """A job as it is stored, with every default written out.

    Of one that is unplanned or refused it is what was written, as far as that can be read.
    """

    job_id: UUID
    name: str
    state: JobState
    schedule: Annotated[Raw, SCHEDULE]
    timezone: str
    target: TargetDocument
    payload: Annotated[Raw, Meta(description="as it was written")]
    misfire: MisfireDocument
    overlap: OverlapDocument
    retry: RetryDocument
    timeout: Duration
    jitter: Duration
    priority: int
    dst: DstDocument
    idempotency_key: str
    tags: dict[str, str]
    version: int
    created_at: datetime
    updated_at: datetime
    paused_at: datetime | None
    next_run_at: datetime | None
    error: Annotated[
        str | None, Meta(description="why a job was refused that an application had scheduled")
    ] = None
    too_late: Annotated[
        tuple[str, ...], Meta(description="the armed runs that a change may not have reached")
    ] = ()
    warnings: Annotated[tuple[str, ...], WARNINGS] = ()
