"""An operation of the API: path, types, scope and handler.

Invariant: routing, parsing, authorization and the OpenAPI document all derive from the same
`Operation`, so the document describes what is served.
"""

import asyncio
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
    """No query parameters."""


class NoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty body; `{}` is accepted too, for clients that cannot send none."""


class Call(Struct, Generic[Query, Body], frozen=True, kw_only=True):
    """An authenticated request with typed query and body.

    `now_us` is when the request arrived. A retry with the same Idempotency-Key has the arrival time
    and the `seed` of the first copy, so it creates the same ids, and creates them once.
    """

    caller: Caller
    now_us: int
    query: Query
    body: Body
    path: Mapping[str, str]
    content_type: str = JSON
    if_match: str | None = None
    seed: bytes | None = None
    is_copy: bool = False  # an earlier copy with the same key may have been executed in part
    scopes: frozenset[str] = frozenset()
    lost: asyncio.Future[None] | None = None  # of an operation that waits: its connection ended

    @property
    def is_operator(self) -> bool:
        """True if the request may concern other tenants than the caller's own."""
        return Scope.OPERATOR in self.scopes

    @property
    def job_id(self) -> UUID:
        """The job id in the path; an invalid id is reported as `JobNotFound`."""
        try:
            return UUID(self.path["job_id"])
        except ValueError:
            raise JobNotFound from None

    @property
    def run_key(self) -> RunKey:
        """The run in the path; an invalid id is reported as `RunNotFound`."""
        try:
            return parse_run_id(self.path["run_id"])
        except InvalidRunId:
            raise RunNotFound from None


class ApiResponse(Struct, frozen=True, kw_only=True):
    """The response: a struct of `wire`, or nothing.

    `kept_body` replaces the body in replayed responses, to leave out a secret.
    """

    body: object = None
    kept_body: object = None
    status: int = 200
    headers: Mapping[str, str] = {}


Handle = Callable[[Any], Awaitable[ApiResponse]]  # takes a `Call` with the operation's types
Upgrade = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]


class Operation(Struct, frozen=True, kw_only=True):
    """One operation of the API.

    `body` is the type of the request's JSON, `bytes` if the handler parses it itself, or None. With
    `is_body_optional`, an empty body means `{}`. `is_conditional` operations honour If-Match.
    Operations that are `is_repeatable` need no Idempotency-Key, because a second copy changes
    nothing more. While an operation with `is_waiting` waits, it does not count as in flight.
    `upgrade` serves requests for a WebSocket.
    """

    method: str
    path: str
    summary: str
    scope: Scope
    handle: Handle
    response: Any  # the type of its JSON, or None
    description: str = ""  # in addition to the summary
    status: int = 200
    query: type[Struct] = NoQuery
    body: Any = None
    is_body_optional: bool = False
    is_conditional: bool = False
    content_types: tuple[str, ...] = (JSON,)
    described_body: Any = None  # documents a `body` of bytes
    max_body_bytes: int = MAX_DOCUMENT_BYTES
    other_scopes: tuple[Scope, ...] = ()  # each of them is enough, too
    is_repeatable: bool = False
    is_waiting: bool = False
    upgrade: Upgrade | None = None

    @property
    def name(self) -> str:
        """The operation id, e.g. `post_jobs_job_id_pause`."""
        return re.sub(r"\W+", "_", f"{self.method.lower()}{self.path}").strip("_")


def to_response(answer: ApiResponse) -> web.Response:
    """The HTTP response of an answer."""
    return web.Response(
        body=b"" if answer.body is None else msgspec.json.encode(answer.body),
        status=answer.status,
        headers=answer.headers,
        content_type=None if answer.body is None else JSON,
    )
