"""Problem documents (RFC 9457): what was wrong, where, and what would be right.

Invariant: every error response of the API is one of these.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

CONTENT_TYPE: Final = "application/problem+json"


class FieldProblem(Struct, frozen=True):
    """One invalid field."""

    pointer: Annotated[
        str, Meta(description="JSON pointer (RFC 6901), or name of the query parameter.")
    ]
    detail: str


class Problem(Struct, frozen=True, kw_only=True):
    """An error, with text for people and a type for programs."""

    type: Annotated[str, Meta(examples=["urn:wheelsched:problem:job-not-found"])]
    title: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()
    request_id: str | None = None
