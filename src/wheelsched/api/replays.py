"""Idempotency keys of requests: a request that is sent again is answered as it was the first time.

Invariant: of all sendings of one key, by any number of processes and through any crash, the work
is done as of the first: at its time, with its ids. So what a lost answer left behind is found and
not made twice.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from wheelsched.api.operation import JSON, Answer, written
from wheelsched.api.problems import problem_of
from wheelsched.core.duration import MINUTE
from wheelsched.errors import (
    RequestKeyBusy,
    RequestKeyInvalid,
    RequestKeyReused,
    StoreError,
)
from wheelsched.ports import Caller, IdempotencyStore, KeptAnswer, KeyedRequest

log = structlog.get_logger("wheelsched.api")

HEADER: Final = "Idempotency-Key"
# Whoever has not answered by then has crashed, or is so slow that its work is done by now.
PATIENCE_US: Final = MINUTE
REPLAYED: Final = {"Idempotency-Replayed": "true"}

_KEY: Final = re.compile(r"[!-~]{1,255}")

Work = Callable[[KeyedRequest], Awaitable[Answer]]


def read_key(request: web.BaseRequest) -> str | None:
    """The key of a request; None when it has none."""
    key = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        raise RequestKeyInvalid
    return key


def seed_of(caller: Caller, key: str) -> bytes:
    """What the ids of whatever is made for a key are made of."""
    return hashlib.sha256(caller.tenant_id.bytes + key.encode()).digest()


def digest_of(request: web.BaseRequest, body: bytes) -> bytes:
    """What two sendings of one request have in common, and two requests have not."""
    head = f"{request.method} {request.rel_url.raw_path_qs}\n"
    return hashlib.sha256(head.encode() + body).digest()


class Replays:
    """Requests by their key."""

    def __init__(self, store: IdempotencyStore) -> None:
        self._store = store

    async def answer(self, caller: Caller, key: str, digest: bytes, work: Work) -> web.Response:
        """The answer that was kept for a key, or that of `work`, which is kept."""
        begun = await self._store.begin(caller, key, digest, PATIENCE_US)
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
        return written(answer)

    async def _keep(self, caller: Caller, key: str, answer: Answer) -> None:
        """An answer that cannot be kept is given all the same: the work is done."""
        body = answer.body if answer.kept_body is None else answer.kept_body
        kept = KeptAnswer(
            status=answer.status,
            headers=dict(answer.headers),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        try:
            await self._store.keep(caller, key, kept)
        except StoreError as error:
            log.warning("answer.lost", error=type(error).__name__)

    async def _give_back(self, caller: Caller, key: str, ticket: int, error: BaseException) -> None:
        """A refusal changed nothing, and the key is as new. Of anything else nobody knows how far
        it came: the next sending goes on, as of the same beginning."""
        is_refusal = problem_of(error).status < 500
        try:
            if is_refusal:
                await self._store.forget(caller, key, ticket)
            else:
                await self._store.give_back(caller, key, ticket)
        except StoreError as failure:
            log.warning("key.held", error=type(failure).__name__)


def _replayed(answer: KeptAnswer) -> web.Response:
    return web.Response(
        body=answer.body,
        status=answer.status,
        headers={**answer.headers, **REPLAYED},
        content_type=JSON if answer.body else None,
    )
