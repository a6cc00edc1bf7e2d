"""What a call of the API is: its address, its types, its scope, and who answers it.

Invariant: routing, reading, the rights and the OpenAPI document all come from one `Operation`, so
that what is described is what is served.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import Struct

from wheelsched.core.model import RunKey, parse_run_id
from wheelsched.errors import InvalidRunId, JobNotFound, RunNotFound
from wheelsched.ports import Caller
from wheelsched.wire.tenant import Scope

PREFIX: Final = "/api/v1"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
NDJSON: Final = "application/x-ndjson"

MAX_DOCUMENT_BYTES: Final = 1 << 20

Query = TypeVar("Query")
Body = TypeVar("Body")


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class NoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing, which is an object without fields to those who cannot send nothing."""


class Call(Struct, Generic[Query, Body], frozen=True, kw_only=True):
    """A request that may be answered: its caller is known, and its parts have their types.

    `now_us` is when it came; one that is sent again with its Idempotency-Key came when it came
    first, and has the same `seed`. So whatever it makes has the same ids, and is made once.
    """

    caller: Caller
    now_us: int
    query: Query
    body: Body
    path: Mapping[str, str]
    content_type: str = JSON
    if_match: str | None = None
    seed: bytes | None = None
    scopes: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        """Whether it may be about other tenants than the caller's own."""
        return Scope.OPERATOR in self.scopes

    @property
    def job_id(self) -> UUID:
        """The job in the address; what is no id names no job."""
        try:
            return UUID(self.path["job_id"])
        except ValueError:
            raise JobNotFound from None

    @property
    def run_key(self) -> RunKey:
        """The run in the address; what is no id names no run."""
        try:
            return parse_run_id(self.path["run_id"])
        except InvalidRunId:
            raise RunNotFound from None


class Answer(Struct, frozen=True, kw_only=True):
    """What goes back: a struct of `wire`, or nothing.

    `kept_body` is what a request that is sent again gets instead, where the first has a secret.
    """

    body: object = None
    kept_body: object = None
    status: int = 200
    headers: Mapping[str, str] = {}


Handle = Callable[[Any], Awaitable[Answer]]  # it takes the `Call` of its own types


class Operation(Struct, frozen=True, kw_only=True):
    """One row of the API's table.

    `body` is the type of the request's JSON; `bytes` when the handler reads it itself, None when
    there is nothing to say. With `is_body_optional` no body is the same as `{}`. One that
    `is_conditional` heeds If-Match.
    """

    method: str
    path: str
    summary: str
    scope: Scope
    handle: Handle
    answer: type[Struct] | None
    description: str = ""  # beyond the summary
    status: int = 200
    query: type[Struct] = NoQuery
    body: Any = None
    is_body_optional: bool = False
    is_conditional: bool = False
    content_types: tuple[str, ...] = (JSON,)
    described_body: Any = None  # where `body` is bytes
    max_body_bytes: int = MAX_DOCUMENT_BYTES

    @property
    def name(self) -> str:
        """What a generated client calls it, such as `post_jobs_job_id_pause`."""
        return re.sub(r"\W+", "_", f"{self.method.lower()}{self.path}").strip("_")


def written(answer: Answer) -> web.Response:
    """An answer as it goes to the socket."""
    return web.Response(
        body=b"" if answer.body is None else msgspec.json.encode(answer.body),
        status=answer.status,
        headers=answer.headers,
        content_type=None if answer.body is None else JSON,
    )
