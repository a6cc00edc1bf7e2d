"""Job documents: what users write and what the API returns.

Invariant: these structs define the fields and their types, and reject all others. The core
validates the values; descriptions, ranges and defaults here only document. A test compares
`docs/JOBS.md` with them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, get_args
from uuid import UUID

from msgspec import Meta, Raw, Struct, field

from wheelsched.core.model import DEFAULT_CLAIM_WITHIN_US, DEFAULT_IDEMPOTENCY_KEY, JobState
from wheelsched.core.policies.policy import UNLIMITED_CONCURRENCY, Backoff, OnMisfire, OnOverlap
from wheelsched.core.policies.policy_json import (
    MAX_ATTEMPTS,
    MAX_MISSED,
    MAX_PRIORITY,
    Policies,
    write_policies,
)
from wheelsched.core.targets.queue import MAX_QUEUE, QUEUE_PATTERN
from wheelsched.core.targets.sensitive import MASK
from wheelsched.core.targets.target import METHODS
from wheelsched.schedule.bounds import MAX_EXCLUSIONS
from wheelsched.schedule.spec import DstGap, DstOverlap
from wheelsched.values.duration import format_duration
from wheelsched.values.labels import MAX_NAME
from wheelsched.wire.annotations import about, choice, integer


def _text(description: str, example: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "examples": [example]}


_DEFAULTS: Final = write_policies(Policies())

MAX_BATCH: Final = 1_000

DURATION: Final = Meta(
    description="Whole numbers with the units w, d, h, m, s, ms, us, largest first.",
    examples=["90s", "1h30m"],
    extra_json_schema={"pattern": r"^(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?(\d+us)?$"},
)
SCHEDULE: Final = Meta(
    description="When the job is due: a cron expression, an ISO 8601 time for a one-off, "
    "`every 5m`, or `RRULE:…`; `in 5m` for a one-off five minutes from now, stored as its instant; "
    "or an object with one of `cron`, `at`, `every`, `rrule`, and `start`, `end` and `exclude`.",
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
                    "cron": _text("Cron expression.", "0 9 * * 1"),
                    "at": _text("Time of a one-off.", "2026-03-08T09:30:00"),
                    "every": _text("Interval of elapsed time, at least 1s.", "5m"),
                    "rrule": _text("Recurrence rule (RFC 5545).", "FREQ=DAILY;BYHOUR=9"),
                    "start": _text("Earliest due time or date.", "2026-01-01"),
                    "end": _text("Latest due time or date.", "2026-12-31T18:00:00Z"),
                    "exclude": {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": MAX_EXCLUSIONS,
                        "description": "Local dates and date ranges on which the job is not due.",
                        "examples": [["2026-12-25", "2026-12-27/2027-01-02"]],
                    },
                },
                "additionalProperties": False,
            },
        ]
    },
)
NAME: Final = Meta(
    description="Job name, unique within the tenant.",
    examples=["weekly-report"],
    extra_json_schema={"minLength": 1, "maxLength": MAX_NAME},
)
QUEUE: Final = Meta(
    extra_json_schema={"minLength": 1, "maxLength": MAX_QUEUE, "pattern": f"^{QUEUE_PATTERN}$"}
)
WARNINGS: Final = Meta(
    description="Why the schedule may not do what its author intended, e.g. because another "
    "scheduler reads it differently."
)

Duration = Annotated[str, DURATION]


class TargetDocument(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Where the runs go: to a URL that is called, or to a queue from which workers take them."""

    url: Annotated[
        str | None,
        about("URL to call, `http` or `https`.", example="https://example.org/hooks/report"),
    ] = None
    method: Annotated[
        Annotated[str, choice(*METHODS)] | None, about("HTTP method.", default="POST")
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        about(
            "Headers of every callback. Values of sensitive ones, e.g. `authorization`, are "
            f"shown as `{MASK}`.",
            default={},
            example={"x-team": "a"},
        ),
    ] = None
    batch: Annotated[
        Annotated[int, integer(1, MAX_BATCH)] | None,
        about("Maximum runs per request; above 1 the body is an array.", default=1),
    ] = None
    queue: Annotated[
        Annotated[str, QUEUE] | None,
        about("Queue from which workers take the runs, in place of `url`.", example="billing"),
    ] = None
    claim_within: Annotated[
        Duration | None,
        about(
            "How long a run waits in its queue for a worker, 1s to 30d; after that it is dead.",
            default=format_duration(DEFAULT_CLAIM_WITHIN_US),
        ),
    ] = None


class MisfireDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with missed runs."""

    policy: Annotated[
        Annotated[str, choice(*OnMisfire)] | None,
        about(
            "Which runs that are later than `grace` still fire: the latest, the latest "
            "`max_missed`, or none.",
            default=_DEFAULTS["misfire"]["policy"],
        ),
    ] = None
    grace: Annotated[
        Duration | None,
        about(
            "Maximum lateness of a run that counts as on time, at most 1d.",
            default=_DEFAULTS["misfire"]["grace"],
        ),
    ] = None
    window: Annotated[
        Duration | None,
        about(
            "Maximum lateness of a run that is still caught up, at most 30d. The default is "
            "`grace` if that is longer.",
            default=_DEFAULTS["misfire"]["window"],
        ),
    ] = None
    max_missed: Annotated[
        Annotated[int, integer(1, MAX_MISSED)] | None,
        about(
            "Maximum number of missed runs that the policy `all` catches up.",
            default=_DEFAULTS["misfire"]["max_missed"],
        ),
    ] = None


class OverlapDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with a run that is due while earlier ones are unfinished."""

    policy: Annotated[
        Annotated[str, choice(*OnOverlap)] | None,
        about(
            "Skip the run, queue it, start it alongside the others, or cancel the oldest.",
            default=_DEFAULTS["overlap"]["policy"],
        ),
    ] = None
    max_concurrent: Annotated[
        Annotated[int, integer(1, UNLIMITED_CONCURRENCY)] | None,
        about(
            "Maximum number of live runs of the job. The default is 1, or "
            f"{UNLIMITED_CONCURRENCY:,} with the policy `allow`; with `skip` only 1 is valid.",
            default=None,
            example=1,
        ),
    ] = None


class RetryDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and when a failed run is retried."""

    max_attempts: Annotated[
        Annotated[int, integer(1, MAX_ATTEMPTS)] | None,
        about(
            "Maximum attempts per run, including the first.",
            default=_DEFAULTS["retry"]["max_attempts"],
        ),
    ] = None
    backoff: Annotated[
        Annotated[str, choice(*Backoff)] | None,
        about(
            "How the maximum wait grows with each failed attempt.",
            default=_DEFAULTS["retry"]["backoff"],
        ),
    ] = None
    initial: Annotated[
        Duration | None,
        about(
            "Maximum wait after the first failure, 1ms to 1d.",
            default=_DEFAULTS["retry"]["initial"],
        ),
    ] = None
    max: Annotated[
        Duration | None,
        about(
            "Maximum wait after any failure, 1ms to 1d. The default is `initial` if that is "
            "longer.",
            default=_DEFAULTS["retry"]["max"],
        ),
    ] = None


class DstDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with a due time that a clock change skips or repeats.

    Schedules that run at least hourly through the change are not affected.
    """

    gap: Annotated[
        Annotated[str, choice(*get_args(DstGap))] | None,
        about(
            "A time that a clock change skips: run at the end of the gap, or not at all.",
            default="shift",
        ),
    ] = None
    overlap: Annotated[
        Annotated[str, choice(*get_args(DstOverlap))] | None,
        about(
            "A time that a clock change repeats: run the first time, the last, or both.",
            default="first",
        ),
    ] = None


class JobDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as its user writes it. A null field counts as omitted."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("cron", "crontab", "expression", "interval"), "schedule"),
        **dict.fromkeys(("every", "at", "rrule", "when", "start", "end"), "schedule"),
        **dict.fromkeys(("tz", "time_zone", "zone"), "timezone"),
        **dict.fromkeys(("url", "endpoint", "webhook", "callback"), "target.url"),
        **{name: f"target.{name}" for name in ("method", "headers", "batch")},
        **{name: f"target.{name}" for name in ("queue", "claim_within")},
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
    target: Annotated[
        TargetDocument,
        about(
            "Where the runs go: a `url` or a `queue`.",
            example={"url": "https://example.org/hooks/report"},
        ),
    ]
    timezone: Annotated[
        str | None,
        about("IANA time zone of the schedule.", default="UTC", example="America/New_York"),
    ] = None
    payload: Annotated[
        Raw,
        about(
            "Any JSON value of at most 256 KiB, sent byte for byte.",
            default=None,
            example={"report": "weekly"},
        ),
    ] = field(default_factory=lambda: Raw(b"null"))
    misfire: Annotated[
        MisfireDocument | None,
        about(
            "What to do with missed runs.", default={}, example={"policy": "all", "max_missed": 10}
        ),
    ] = None
    overlap: Annotated[
        OverlapDocument | None,
        about(
            "What to do with a run that is due while earlier ones are unfinished.",
            default={},
            example={"policy": "queue"},
        ),
    ] = None
    retry: Annotated[
        RetryDocument | None,
        about(
            "How often and when a failed run is retried.",
            default={},
            example={"max_attempts": 10, "max": "1h"},
        ),
    ] = None
    timeout: Annotated[
        Duration | None,
        about(
            "Timeout of an attempt, 10ms to 1d; after a 202, the maximum time between heartbeats.",
            default=_DEFAULTS["timeout"],
        ),
    ] = None
    jitter: Annotated[
        Duration | None,
        about(
            "Random delay of up to this long, at most the shortest interval between two runs.",
            default="0s",
            example="30s",
        ),
    ] = None
    priority: Annotated[
        Annotated[int, integer(-MAX_PRIORITY, MAX_PRIORITY)] | None,
        about(
            "Among a tenant's waiting runs, those with a higher priority are sent first.", default=0
        ),
    ] = None
    dst: Annotated[
        DstDocument | None,
        about(
            "What to do with a due time that a clock change skips or repeats.",
            default={},
            example={"gap": "skip"},
        ),
    ] = None
    idempotency_key: Annotated[
        str | None,
        about(
            "Template of the idempotency key that the worker receives.",
            default=DEFAULT_IDEMPOTENCY_KEY,
        ),
    ] = None
    tags: Annotated[
        dict[str, str] | None,
        about("Labels to filter lists by.", default={}, example={"team": "a"}),
    ] = None


class JobAnswer(Struct, frozen=True, kw_only=True):
    """A stored job, with all defaults filled in.

    A job that is unplanned or refused is shown as it was written, as far as it can be parsed.
    """

    job_id: UUID
    name: str
    state: Annotated[JobState, Meta(description="See JOBS.md for what each state means.")]
    schedule: Annotated[Raw, SCHEDULE]
    timezone: str
    target: TargetDocument
    payload: Annotated[Raw, Meta(description="The payload as registered.")]
    misfire: MisfireDocument
    overlap: OverlapDocument
    retry: RetryDocument
    timeout: Duration
    jitter: Duration
    priority: int
    dst: DstDocument
    idempotency_key: str
    tags: dict[str, str]
    version: Annotated[int, Meta(description="Incremented by every change; used as the ETag.")]
    created_at: datetime
    updated_at: datetime
    paused_at: Annotated[datetime | None, Meta(description="Null unless the job is paused.")]
    next_run_at: Annotated[datetime | None, Meta(description="Null unless the job is active.")]
    error: Annotated[str | None, Meta(description="Why a job scheduled in SQL was refused.")] = None
    too_late: Annotated[
        tuple[str, ...],
        Meta(description="Ids of runs that were already being sent and do not follow the change."),
    ] = ()
    warnings: Annotated[tuple[str, ...], WARNINGS] = ()
