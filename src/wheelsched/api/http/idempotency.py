"""Idempotency keys of requests: a retried request gets the response of the first one.

Invariant: all copies of a request with one key, on any process and across crashes, run with the
time and the ids of the first. So a retry finds what a lost response left behind and creates nothing
twice.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from wheelsched.api.http.operation import JSON, ApiResponse, to_response
from wheelsched.api.http.problems import problem_of
from wheelsched.errors import (
    RequestKeyBusy,
    RequestKeyInvalid,
    RequestKeyReused,
    StoreError,
)
from wheelsched.ports import Caller, IdempotencyStore, KeptAnswer, KeyedRequest
from wheelsched.values.duration import MINUTE

log = structlog.get_logger("wheelsched.api")

HEADER: Final = "Idempotency-Key"
# A request without a response by then has crashed, or is so slow that its work is done; the next
# copy takes over.
TAKEOVER_AFTER_US: Final = MINUTE
REPLAYED: Final = {"Idempotency-Replayed": "true"}

_KEY: Final = re.compile(r"[!-~]{1,255}")

Work = Callable[[KeyedRequest], Awaitable[ApiResponse]]


def read_key(request: web.BaseRequest) -> str | None:
    """The Idempotency-Key of a request, if it has one."""
    key = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        raise RequestKeyInvalid
    return key


def seed_of(caller: Caller, key: str) -> bytes:
    """The seed of the ids that a request with this key creates."""
    return hashlib.sha256(caller.tenant_id.bytes + key.encode()).digest()


def digest_of(request: web.BaseRequest, body: bytes) -> bytes:
    """Fingerprint of a request, to detect a retry."""
    head = f"{request.method} {request.rel_url.raw_path_qs}\n"
    return hashlib.sha256(head.encode() + body).digest()


class IdempotencyKeys:
    """Runs requests with a key, and replays their responses."""

    def __init__(self, store: IdempotencyStore, takeover_after_us: int = TAKEOVER_AFTER_US) -> None:
        self._store = store
        self._takeover_after_us = takeover_after_us

    async def run(self, caller: Caller, key: str, digest: bytes, work: Work) -> web.Response:
        """The stored response for a key; otherwise runs `work` and stores its response."""
        begun = await self._store.begin(caller, key, digest, self._takeover_after_us)
        if begun.digest != digest:
            raise RequestKeyReused
        if begun.answer is not None:
            return _replayed(begun.answer)
        if begun.ticket is None:
            raise RequestKeyBusy
        try:
            answer = await work(begun)
        except BaseException as error:
            await self._give_back(caller, key, begun.ticket, error)
            raise
        await self._keep(caller, key, answer)
        return to_response(answer)

    async def _keep(self, caller: Caller, key: str, answer: ApiResponse) -> None:
        """Stores a response. If that fails it is still returned, because the work is done."""
        body = answer.body if answer.kept_body is None else answer.kept_body
        kept = KeptAnswer(
            status=answer.status,
            headers=dict(answer.headers),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        try:
            await self._store.keep(caller, key, kept)
        except StoreError as error:
            log.warning("response.save_failed", error=type(error).__name__)

    async def _give_back(self, caller: Caller, key: str, ticket: int, error: BaseException) -> None:
        """Releases the key of a failed request.

        A rejected request changed nothing, so its key can be reused freely. After any other error
        the progress is unknown, and the next copy continues from the same start.
        """
        is_rejected = problem_of(error).status < 500
        try:
            if is_rejected:
                await self._store.forget(caller, key, ticket)
            else:
                await self._store.give_back(caller, key, ticket)
        except StoreError as failure:
            log.warning("key.release_failed", error=type(failure).__name__)


def _replayed(answer: KeptAnswer) -> web.Response:
    return web.Response(
        body=answer.body,
        status=answer.status,
        headers={**answer.headers, **REPLAYED},
        content_type=JSON if answer.body else None,
    )
