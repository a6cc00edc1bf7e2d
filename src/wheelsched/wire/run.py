"""Runs on the wire: their history, what people ask of them, and what workers report.

Invariant: a run is named by its `run_id` everywhere, and whoever reports for it says its token.
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
    int, Meta(ge=0, le=2**63 - 1, description="`wheelsched-fencing-token` of the attempt")
]


class AttemptAnswer(Struct, frozen=True, kw_only=True):
    """One dispatch of a run."""

    attempt: int
    token: int | None
    shard: UUID | None
    started_at: datetime | None
    finished_at: datetime | None
    http_status: int | None
    error: str | None


class RunAnswer(Struct, frozen=True, kw_only=True):
    """One due time of a job, and what became of it."""

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
        Meta(description="of a single run that is due and held back: the open circuit breaker"),
    ] = None
    attempts: Annotated[
        tuple[AttemptAnswer, ...] | None, Meta(description="of a single run; null in lists")
    ] = None
    job_name: Annotated[
        str | None,
        Meta(description="of a single run and in lists across jobs; null once the job is deleted"),
    ] = None


class RunPage(Struct, frozen=True, kw_only=True):
    items: list[RunAnswer]
    next_cursor: str | None


class HeartbeatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker is still at it."""

    token: Token


class CompleteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker did it."""

    token: Token


class FailRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker could not do it; with `retry` false, it never will."""

    token: Token
    error: Annotated[str, Meta(max_length=MAX_ERROR_LENGTH)] = ""
    retry: bool = True


class CancelAnswer(Struct, frozen=True, kw_only=True):
    """Whether the run was ended in time to keep it from being sent."""

    run_id: str
    in_time: bool


class RequestedAnswer(Struct, frozen=True, kw_only=True):
    """Runs that were put in line."""

    count: int
    run_ids: list[str]
    preview: bool = False


class TriggerRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a job now, with its own payload or with this one."""

    payload: Annotated[
        Raw | UnsetType, Meta(description="any JSON, sent byte for byte in place of the job's")
    ] = UNSET


class BackfillRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fill the due times from `since` until before `until`, or count them."""

    since: Instant
    until: Instant
    preview: bool = False


class RedriveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Put runs that are out of attempts in line again, oldest first.

    `rate` is how many of them become due each second; without it all are due at once, and the
    shard's pace for late runs alone holds them back.
    """

    job_id: UUID | None = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_REDRIVE)] = 1_000
    rate: Annotated[int, Meta(ge=1, le=MAX_REDRIVE)] | None = None
