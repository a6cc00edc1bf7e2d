"""A call of the API as a value: path, query, body and response type.

Invariant: a call states whether it is safe to send again when its response was lost.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Struct

from wheelsched.client.body import write_json

PREFIX: Final = "/api/v1"
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
MERGE_PATCH: Final = "application/merge-patch+json"

Answer = TypeVar("Answer")
Parameter = str | int | datetime | UUID | StrEnum | Sequence[str] | None


class RetrySafety(StrEnum):
    """What makes it safe to resend a call whose response was lost."""

    IDEMPOTENT = "idempotent"  # a second call has no further effect
    KEY = "key"  # the API detects the retry by its Idempotency-Key
    NEVER = "never"  # not safe


class Call(Struct, Generic[Answer], frozen=True, kw_only=True):
    """One call; `answer` is the type of its response."""

    method: str
    path: str  # below the prefix
    answer: type[Answer]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = JSON
    if_match: str | None = None
    retry_safety: RetrySafety = RetrySafety.IDEMPOTENT
    is_removal: bool = False  # a retry that gets 404 has succeeded

    @property
    def is_retryable(self) -> bool:
        return self.retry_safety is not RetrySafety.NEVER

    def read(self, body: bytes) -> Answer:
        """Decodes the response, or raises `msgspec.DecodeError`."""
        # An empty response is None.
        return msgspec.json.decode(body or b"null", type=self.answer)


def get(
    path: str, answer: type[Answer], query: Mapping[str, Parameter] | None = None
) -> Call[Answer]:
    """A call without side effects."""
    return Call(method="GET", path=path, answer=answer, query=write_query(query or {}))


def post(
    path: str,
    answer: type[Answer],
    body: object = None,
    retry_safety: RetrySafety = RetrySafety.KEY,
) -> Call[Answer]:
    """A call with side effects."""
    encoded = None if body is None else write_json(body)
    return Call(method="POST", path=path, answer=answer, body=encoded, retry_safety=retry_safety)


def write_query(parameters: Mapping[str, Parameter]) -> tuple[tuple[str, str], ...]:
    """Query parameters as text, without those that are None."""
    pairs: list[tuple[str, str]] = []
    for name, value in parameters.items():
        match value:
            case None:
                continue
            case str() | int() | UUID():
                pairs.append((name, str(value)))
            case datetime():
                pairs.append((name, value.isoformat()))
            case _:
                pairs += [(name, each) for each in value]
    return tuple(pairs)


def segment(value: object) -> str:
    """A path segment, percent-encoded."""
    return quote(str(value), safe="")
