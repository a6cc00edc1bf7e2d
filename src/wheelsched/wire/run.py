"""Runs on the wire: history, requested runs, and reports of workers.

Invariant: a run is identified by its `run_id` everywhere, and a worker's report carries the fencing
token of the attempt.
"""

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from wheelsched.core.model import RunState, SkipReason, Trigger
from wheelsched.core.outcome import MAX_ERROR_LENGTH
from wheelsched.wire.instant import Instant

MAX_REDRIVE: Final = 10_000

Token = Annotated[
    int, Meta(ge=0, le=2**63 - 1, description="`wheelsched-fencing-token` of the attempt.")
]


class AttemptAnswer(Struct, frozen=True, kw_only=True):
    """One attempt of a run."""

    attempt: int
    token: int | None
    shard: UUID | None
    started_at: datetime | None
    finished_at: datetime | None
    http_status: int | None
    error: str | None


class RunAnswer(Struct, frozen=True, kw_only=True):
    """One run of a job and its outcome."""

    run_id: str
    job_id: UUID
    scheduled_at: datetime
    due_at: datetime
    state: RunState
    trigger: Trigger
    attempt: int
    retry_at: datetime | None
    armed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    lateness_ms: float | None
    http_status: int | None
    error: str | None
    skip_reason: SkipReason | None
    missed_count: int | None
    missed_since: datetime | None
    shard: UUID | None
    token: int | None
    waiting_for: Annotated[
        str | None,
        Meta(description="The open circuit breaker that holds the run back. Null in lists."),
    ] = None
    attempts: Annotated[
        tuple[AttemptAnswer, ...] | None,
        Meta(description="All attempts of the run. Null in lists."),
    ] = None
    job_name: Annotated[
        str | None,
        Meta(description="Null in lists of one job, and once the job is deleted."),
    ] = None


class RunPage(Struct, frozen=True, kw_only=True):
    items: list[RunAnswer]
    next_cursor: str | None


class HeartbeatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker is still processing the run."""

    token: Token


class CompleteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker completed the run."""

    token: Token


class FailRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker failed to process the run; `retry: false` rules out another attempt."""

    token: Token
    error: Annotated[str, Meta(max_length=MAX_ERROR_LENGTH)] = ""
    retry: bool = True


class CancelAnswer(Struct, frozen=True, kw_only=True):
    """Whether the run was cancelled before it was sent."""

    run_id: str
    in_time: bool


class RequestedAnswer(Struct, frozen=True, kw_only=True):
    """The runs that were added."""

    count: int
    run_ids: list[str]
    preview: bool = False


class TriggerRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a job now, with its own payload or the given one."""

    payload: Annotated[
        Raw | UnsetType,
        Meta(description="Any JSON value, sent byte for byte instead of the job's payload."),
    ] = UNSET


class BackfillRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adds runs for the due times from `since` until before `until`, or only counts them."""

    since: Instant
    until: Instant
    preview: bool = False


class RedriveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retry dead runs, oldest first.

    `rate` is how many of them become due per second. Without it all are due at once, limited only
    by the shard's backlog rate.
    """

    job_id: UUID | None = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_REDRIVE)] = 1_000
    rate: Annotated[int, Meta(ge=1, le=MAX_REDRIVE)] | None = None
