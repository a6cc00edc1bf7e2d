"""Jobs on the wire: the document that a user writes, and what comes back.

Invariant: these structs say which fields there are and of which type, and refuse any other. What
the text in them must look like is for the core to judge, which knows more to say about it; the
descriptions, values, bounds and defaults in them only document that. `docs/JOBS.md` is checked
against them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, get_args
from uuid import UUID

from msgspec import Meta, Raw, Struct, field

from wheelsched.core.bounds import MAX_EXCLUSIONS
from wheelsched.core.labels import MAX_NAME
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY, JobState
from wheelsched.core.policy import UNLIMITED_CONCURRENCY, Backoff, OnMisfire, OnOverlap
from wheelsched.core.sensitive import MASK
from wheelsched.core.spec import DstGap, DstOverlap
from wheelsched.core.target import METHODS
from wheelsched.core.written import (
    MAX_ATTEMPTS,
    MAX_MISSED,
    MAX_PRIORITY,
    Policies,
    write_policies,
)
from wheelsched.wire.describing import about, choice, integer


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
                    "cron": _text("A cron expression.", "0 9 * * 1"),
                    "at": _text("The time of a one-off.", "2026-03-08T09:30:00"),
                    "every": _text("An interval of elapsed time, at least 1s.", "5m"),
                    "rrule": _text("A recurrence rule (RFC 5545).", "FREQ=DAILY;BYHOUR=9"),
                    "start": _text("First time or date that may be due.", "2026-01-01"),
                    "end": _text("Last time or date that may be due.", "2026-12-31T18:00:00Z"),
                    "exclude": {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": MAX_EXCLUSIONS,
                        "description": "Local dates, and ranges of them, that are never due.",
                        "examples": [["2026-12-25", "2026-12-27/2027-01-02"]],
                    },
                },
                "additionalProperties": False,
            },
        ]
    },
)
NAME: Final = Meta(
    description="The job's name, unique in the tenant.",
    examples=["weekly-report"],
    extra_json_schema={"minLength": 1, "maxLength": MAX_NAME},
)
WARNINGS: Final = Meta(
    description="Where the schedule may not mean what its author meant, e.g. because another "
    "scheduler reads it differently."
)

Duration = Annotated[str, DURATION]


class TargetDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the callbacks go."""

    url: Annotated[
        str,
        about("URL that is called, `http` or `https`.", example="https://example.org/hooks/report"),
    ]
    method: Annotated[
        Annotated[str, choice(*METHODS)] | None, about("HTTP method.", default="POST")
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        about(
            "Headers of every callback. Values of sensitive ones, such as `authorization`, are "
            f"answered as `{MASK}`.",
            default={},
            example={"x-team": "a"},
        ),
    ] = None
    batch: Annotated[
        Annotated[int, integer(1, MAX_BATCH)] | None,
        about("Most runs of this target in one request; above 1 the body is an array.", default=1),
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
            "How late a run may be and still count as on time, at most 1d.",
            default=_DEFAULTS["misfire"]["grace"],
        ),
    ] = None
    window: Annotated[
        Duration | None,
        about(
            "How late a run may be and still be caught up, at most 30d. The default is `grace`, "
            "where that is longer.",
            default=_DEFAULTS["misfire"]["window"],
        ),
    ] = None
    max_missed: Annotated[
        Annotated[int, integer(1, MAX_MISSED)] | None,
        about(
            "How many missed runs the policy `all` catches up.",
            default=_DEFAULTS["misfire"]["max_missed"],
        ),
    ] = None


class OverlapDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with a run that is due while earlier ones are unfinished."""

    policy: Annotated[
        Annotated[str, choice(*OnOverlap)] | None,
        about(
            "Skip the run, queue it, start it beside the others, or cancel the oldest.",
            default=_DEFAULTS["overlap"]["policy"],
        ),
    ] = None
    max_concurrent: Annotated[
        Annotated[int, integer(1, UNLIMITED_CONCURRENCY)] | None,
        about(
            "Most live runs of the job. Unset, it is 1, and "
            f"{UNLIMITED_CONCURRENCY:,} with the policy `allow`; with `skip` only 1 is valid.",
            default=None,
            example=1,
        ),
    ] = None


class RetryDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a failed run is tried again, and when."""

    max_attempts: Annotated[
        Annotated[int, integer(1, MAX_ATTEMPTS)] | None,
        about("Attempts of a run, the first included.", default=_DEFAULTS["retry"]["max_attempts"]),
    ] = None
    backoff: Annotated[
        Annotated[str, choice(*Backoff)] | None,
        about(
            "How the longest wait grows with each failed attempt.",
            default=_DEFAULTS["retry"]["backoff"],
        ),
    ] = None
    initial: Annotated[
        Duration | None,
        about(
            "Longest wait after the first failure, 1ms to 1d.",
            default=_DEFAULTS["retry"]["initial"],
        ),
    ] = None
    max: Annotated[
        Duration | None,
        about(
            "Longest wait after any failure, 1ms to 1d. The default is `initial`, where that is "
            "longer.",
            default=_DEFAULTS["retry"]["max"],
        ),
    ] = None


class DstDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with a due time that a clock change skips or repeats.

    It does not apply to a schedule that runs at least hourly through the change.
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
    target: Annotated[
        TargetDocument,
        about("Where the callbacks go.", example={"url": "https://example.org/hooks/report"}),
    ]
    timezone: Annotated[
        str | None,
        about("IANA time zone of the schedule.", default="UTC", example="America/New_York"),
    ] = None
    payload: Annotated[
        Raw,
        about(
            "Any JSON, at most 256 KiB; sent byte for byte.",
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
            "How often a failed run is tried again, and when.",
            default={},
            example={"max_attempts": 10, "max": "1h"},
        ),
    ] = None
    timeout: Annotated[
        Duration | None,
        about(
            "How long an attempt may take, 10ms to 1d; after a 202, how long the worker may be "
            "silent.",
            default=_DEFAULTS["timeout"],
        ),
    ] = None
    jitter: Annotated[
        Duration | None,
        about(
            "Random delay of up to this long, at most the shortest time between two runs.",
            default="0s",
            example="30s",
        ),
    ] = None
    priority: Annotated[
        Annotated[int, integer(-MAX_PRIORITY, MAX_PRIORITY)] | None,
        about("Runs of a higher priority go first among the waiting runs of a tenant.", default=0),
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
        about("Template of the key that a worker sees.", default=DEFAULT_IDEMPOTENCY_KEY),
    ] = None
    tags: Annotated[
        dict[str, str] | None,
        about("Labels that lists can be filtered by.", default={}, example={"team": "a"}),
    ] = None


class JobAnswer(Struct, frozen=True, kw_only=True):
    """A job as it is stored, with every default written out.

    Of one that is unplanned or refused it is what was written, as far as that can be read.
    """

    job_id: UUID
    name: str
    state: Annotated[JobState, Meta(description="See JOBS.md for what each state means.")]
    schedule: Annotated[Raw, SCHEDULE]
    timezone: str
    target: TargetDocument
    payload: Annotated[Raw, Meta(description="As it was written.")]
    misfire: MisfireDocument
    overlap: OverlapDocument
    retry: RetryDocument
    timeout: Duration
    jitter: Duration
    priority: int
    dst: DstDocument
    idempotency_key: str
    tags: dict[str, str]
    version: Annotated[int, Meta(description="Grows with every change; the ETag.")]
    created_at: datetime
    updated_at: datetime
    paused_at: Annotated[datetime | None, Meta(description="Null unless the job is paused.")]
    next_run_at: Annotated[datetime | None, Meta(description="Null unless the job is active.")]
    error: Annotated[
        str | None, Meta(description="Why a job that was scheduled in SQL was refused.")
    ] = None
    too_late: Annotated[
        tuple[str, ...], Meta(description="Armed runs that a change came too late for.")
    ] = ()
    warnings: Annotated[tuple[str, ...], WARNINGS] = ()
