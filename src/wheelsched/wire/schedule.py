"""Schedules on the wire: next due times, previews, and why a job did or did not fire.

Invariant: none of this is stored; it is computed from the job, its history and the current time.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from wheelsched.wire.run import RunAnswer


class DueAnswer(Struct, frozen=True, kw_only=True):
    """One due time, in UTC and in the job's time zone."""

    utc: datetime
    local: datetime


class NextAnswer(Struct, frozen=True, kw_only=True):
    """The next due times of a job."""

    job_id: UUID
    timezone: str
    items: list[DueAnswer]


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """What the job would do if it were registered now."""

    words: str
    next_times: list[DueAnswer]
    warnings: list[str]
    hidden_changes: Annotated[
        list[str] | None,
        Meta(
            description="JSON pointers of the sensitive headers whose value differs from that in "
            "the registered job of the same name; null without such a job or the scope "
            "`write`.",
            examples=[["/target/headers/authorization"]],
        ),
    ] = None


class Verdict(StrEnum):
    """Why a job did or did not fire at a given time."""

    FIRED = "fired"  # the run has an attempt
    WAITING = "waiting"  # the run has no attempt yet
    SKIPPED = "skipped"  # the run has a skip reason
    CANCELLED = "cancelled"
    NOT_DUE = "not_due"  # the schedule has no such due time
    NOT_YET = "not_yet"  # the due time is in the future
    NOT_REGISTERED = "not_registered"  # the job did not exist yet
    PAUSED = "paused"
    EDITED = "edited"  # the job had another schedule then
    UNKNOWN = "unknown"  # due, but there is no record, or no longer


class ExplainAnswer(Struct, frozen=True, kw_only=True):
    """The answer to "why did the job (not) fire then?"."""

    job_id: UUID
    at: datetime
    verdict: Verdict
    detail: Annotated[str, Meta(description="The verdict as a sentence.")]
    run: RunAnswer | None
    due_before: datetime | None
    due_after: datetime | None
