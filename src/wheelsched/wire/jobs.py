"""Requests and responses of the job operations, other than the job document itself.

Invariant: request structs reject unknown fields; clients decode responses with the answer structs.
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
    """Where a resumed job continues; its misfire policy decides about the runs it missed."""

    NOW = "now"
    PAUSED_AT = "paused_at"


class ResumeRequest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}
):
    start: ResumeFrom = ResumeFrom.NOW


class BulkItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result for one document: the id of its job, or its problem."""

    job_id: UUID | None = None
    problem: Problem | None = None
    warnings: Annotated[tuple[str, ...], WARNINGS] = ()


class BulkAnswer(Struct, frozen=True, kw_only=True):
    """The results for all documents of a bulk request."""

    registered: int
    refused: int
    items: Annotated[list[BulkItem], Meta(description="In the order of the request.")]
