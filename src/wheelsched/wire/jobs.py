"""What is asked of jobs, beside their documents.

Invariant: a request struct refuses what it does not know; an answer struct is what a client reads.
"""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from wheelsched.wire.job import WARNINGS, JobAnswer
from wheelsched.wire.problem import Problem


class JobPage(Struct, frozen=True, kw_only=True):
    items: list[JobAnswer]
    next_cursor: str | None


class ResumeFrom(StrEnum):
    """Where a resumed job goes on: what it missed meanwhile is decided by its misfire policy."""

    NOW = "now"
    PAUSED_AT = "paused_at"


class ResumeRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}
):
    start: ResumeFrom = ResumeFrom.NOW


class BulkItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one document: its job's id, or its problem."""

    job_id: UUID | None = None
    problem: Problem | None = None
    warnings: Annotated[tuple[str, ...], WARNINGS] = ()


class BulkAnswer(Struct, frozen=True, kw_only=True):
    """What became of each document, in their order."""

    registered: int
    refused: int
    items: Annotated[list[BulkItem], Meta(description="in the order of the request")]
