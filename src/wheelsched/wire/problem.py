"""Problems on the wire (RFC 9457): what was wrong, where, and what would be right.

Invariant: every answer that is an error is one of these, whoever found it.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

CONTENT_TYPE: Final = "application/problem+json"


class FieldProblem(Struct, frozen=True):
    """One field that does not hold what it should."""

    pointer: Annotated[str, Meta(description="JSON pointer (RFC 6901), or the parameter's name")]
    detail: str


class Problem(Struct, frozen=True, kw_only=True):
    """An error, in words for people and with a type for programs."""

    type: Annotated[str, Meta(examples=["urn:wheelsched:problem:job-not-found"])]
    title: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()
    request_id: str | None = None
