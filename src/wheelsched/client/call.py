"""A call of the API, before anything is sent: its address, its body, and what comes back.

Invariant: a call that may be sent more than once says so, and then means the same however often
it arrives: by itself, or by the key that it carries.
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


class Repeat(StrEnum):
    """What makes it safe to send a call again whose answer was lost."""

    ITSELF = "itself"  # it means the same the second time
    KEY = "key"  # the API keeps its answer by an Idempotency-Key
    NEVER = "never"


class Call(Struct, Generic[Answer], frozen=True, kw_only=True):
    """One call; `answer` is the type of what comes back."""

    method: str
    path: str  # below the prefix
    answer: type[Answer]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = JSON
    if_match: str | None = None
    repeat: Repeat = Repeat.ITSELF
    is_removal: bool = False  # and so done, when it is sent again and finds nothing

    @property
    def is_repeatable(self) -> bool:
        return self.repeat is not Repeat.NEVER

    def read(self, body: bytes) -> Answer:
        """What came back; `msgspec.DecodeError` when it is something else."""
        # An empty answer is None, which JSON writes as null.
        return msgspec.json.decode(body or b"null", type=self.answer)


def get(
    path: str, answer: type[Answer], query: Mapping[str, Parameter] | None = None
) -> Call[Answer]:
    """A call that only reads."""
    return Call(method="GET", path=path, answer=answer, query=write_query(query or {}))


def post(
    path: str, answer: type[Answer], body: object = None, repeat: Repeat = Repeat.KEY
) -> Call[Answer]:
    """A call that does something."""
    encoded = None if body is None else write_json(body)
    return Call(method="POST", path=path, answer=answer, body=encoded, repeat=repeat)


def write_query(parameters: Mapping[str, Parameter]) -> tuple[tuple[str, str], ...]:
    """Parameters as an address carries them, without those that are None."""
    written: list[tuple[str, str]] = []
    for name, value in parameters.items():
        match value:
            case None:
                continue
            case str() | int() | UUID():
                written.append((name, str(value)))
            case datetime():
                written.append((name, value.isoformat()))
            case _:
                written += [(name, each) for each in value]
    return tuple(written)


def segment(value: object) -> str:
    """A part of a path, whatever characters it has."""
    return quote(str(value), safe="")
