"""Schedules on the wire: coming times, previews, and why a job did or did not fire.

Invariant: nothing here is stored; all of it follows from a job, its history and the time.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from wheelsched.wire.run import RunAnswer


class DueAnswer(Struct, frozen=True, kw_only=True):
    """One due time, as machines and as people of its zone read it."""

    utc: datetime
    local: datetime


class NextAnswer(Struct, frozen=True, kw_only=True):
    """The coming due times of a job."""

    job_id: UUID
    timezone: str
    items: list[DueAnswer]


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """What a job would do, if it were registered now."""

    words: str
    next_times: list[DueAnswer]
    warnings: list[str]
    hidden_changes: Annotated[
        list[str] | None,
        Meta(
            description="JSON pointers of the sensitive headers whose value differs from that of "
            "the registered job of the same name; null if there is none, or without the scope "
            "`write`",
            examples=[["/target/headers/authorization"]],
        ),
    ] = None


class Verdict(StrEnum):
    """Why a job did, or did not, fire at a time."""

    FIRED = "fired"  # there is a run, and an attempt of it
    WAITING = "waiting"  # there is a run that waits for an attempt
    SKIPPED = "skipped"  # there was a reason not to
    CANCELLED = "cancelled"
    NOT_DUE = "not_due"  # the schedule has no such time
    NOT_YET = "not_yet"  # it is due then, and that is still to come
    NOT_REGISTERED = "not_registered"  # the job is younger
    PAUSED = "paused"
    EDITED = "edited"  # the schedule of that time was another one
    UNKNOWN = "unknown"  # due, and the history says nothing (any more)


class ExplainAnswer(Struct, frozen=True, kw_only=True):
    """The answer to "why did it (not) fire then?"."""

    job_id: UUID
    at: datetime
    verdict: Verdict
    detail: Annotated[str, Meta(description="the verdict in words")]
    run: RunAnswer | None
    due_before: datetime | None
    due_after: datetime | None
