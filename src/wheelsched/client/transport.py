"""Sends calls over HTTP, with timeouts and retries.

Invariant: a call that may have arrived is resent only if that is safe. Only `ApiError` is raised.
Redirects are not followed, so the token never goes elsewhere.
"""

import asyncio
import re
from io import BytesIO
from random import Random, SystemRandom
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from wheelsched.client.call import PREFIX, Call, RetrySafety
from wheelsched.client.problems import BUSY, read_problem
from wheelsched.clock import SystemClock
from wheelsched.config import ClientConfig
from wheelsched.core.outcome import parse_retry_after
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.policies.retry import wait_us
from wheelsched.errors import (
    ApiError,
    ApiUnavailable,
    InvalidAnswer,
    InvalidApiToken,
    InvalidApiUrl,
    NotFound,
)
from wheelsched.ports import Clock

Answer = TypeVar("Answer")

RATE_LIMITED: Final = 429  # the API did not process the request
RETRYABLE: Final = frozenset({408, 425, RATE_LIMITED, *range(500, 600)})
_BLOCK: Final = 64 * 1024
_VISIBLE: Final = re.compile("[!-~]+")


class Response(Struct, frozen=True):
    status: int
    body: bytes
    retry_after: str | None
    times_sent: int = 1  # aiohttp resends some requests itself when a connection is lost


EMPTY_RESPONSE: Final = Response(204, b"", None)


class FailedAttempt(Struct, frozen=True):
    """A failed attempt, and whether to retry it."""

    error: ApiError
    is_retryable: bool
    retry_after: str | None = None
    may_be_done: bool = False
    was_sent_before: bool = False


class Transport:
    """The connections to one API. It is bound to the event loop of its first use."""

    def __init__(
        self,
        url: str,
        token: str | None,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._url = _check_url(url)
        self._token = None if token is None else _check_token(token)
        self._config = config or ClientConfig()
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._session: aiohttp.ClientSession | None = None
        self._policy = RetryPolicy(
            max_attempts=self._config.max_attempts,
            initial_us=self._config.backoff_ms * 1_000,
            max_us=self._config.max_backoff_ms * 1_000,
        )

    async def close(self) -> None:
        """Closes all connections; the next call opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call[Answer]) -> Answer:
        """Sends a call, with retries, and returns its response."""
        headers = self._headers(call)
        attempt = 1
        may_be_done = False
        while True:
            tried = await self._try(call, headers)
            if isinstance(tried, Response):
                return _read(call, tried)
            may_be_done = may_be_done or tried.was_sent_before
            if call.is_removal and may_be_done and isinstance(tried.error, NotFound):
                return _read(call, EMPTY_RESPONSE)  # an earlier attempt removed it
            may_be_done = may_be_done or tried.may_be_done
            if not tried.is_retryable or attempt == self._policy.max_attempts:
                raise tried.error
            await self._wait(attempt, tried.retry_after)
            attempt += 1

    async def _try(self, call: Call[Answer], headers: dict[str, str]) -> Response | FailedAttempt:
        """One attempt: its response, or why it failed."""
        try:
            response = await self._exchange(call, headers)
        except aiohttp.ClientConnectorError as error:
            return FailedAttempt(_unreachable(error), is_retryable=True)  # nothing was sent
        except (aiohttp.ClientError, OSError) as error:
            return FailedAttempt(
                _unreachable(error), is_retryable=call.is_retryable, may_be_done=True
            )
        if 200 <= response.status <= 299:
            return response
        problem = read_problem(response.status, response.body)
        return FailedAttempt(
            problem,
            _is_retryable(call, problem),
            response.retry_after,
            may_be_done=response.status >= 500,
            was_sent_before=response.times_sent > 1,
        )

    async def _wait(self, attempt: int, retry_after: str | None) -> None:
        asked_us = None if retry_after is None else parse_retry_after(retry_after, 0)
        wait = wait_us(self._policy, attempt, self._random, retry_after_us=asked_us)
        await self._clock.sleep(wait * 1_000)

    async def _exchange(self, call: Call[Answer], headers: dict[str, str]) -> Response:
        url = URL(f"{self._url}{PREFIX}{call.path}", encoded=True).with_query(call.query)
        # A file is sent in chunks; megabytes at once would block the event loop.
        data = None if call.body is None else BytesIO(call.body)
        sent: list[object] = []
        async with self._opened().request(
            call.method,
            url,
            data=data,
            headers=headers,
            allow_redirects=False,
            trace_request_ctx=sent,
        ) as response:
            body = bytearray()
            async for block in response.content.iter_chunked(_BLOCK):
                body += block
                if len(body) > self._config.max_answer_bytes:
                    raise InvalidAnswer("the response is too large", status=response.status)
            return Response(
                response.status,
                bytes(body),
                response.headers.get("Retry-After"),
                times_sent=len(sent),
            )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._config.connections),
                timeout=aiohttp.ClientTimeout(total=self._config.timeout_ms / 1_000),
                trace_configs=[_count_sends()],
            )
        return self._session

    def _headers(self, call: Call[Answer]) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if call.if_match is not None:
            headers["If-Match"] = call.if_match
        if call.retry_safety is RetrySafety.KEY:
            headers["Idempotency-Key"] = f"{self._random.getrandbits(128):032x}"
        return headers


def _count_sends() -> aiohttp.TraceConfig:
    async def note(_: object, context: Any, sent: object) -> None:
        context.trace_request_ctx.append(sent)

    counting = aiohttp.TraceConfig()
    counting.on_request_headers_sent.append(note)
    return counting


def _is_retryable(call: Call[Answer], failure: ApiError) -> bool:
    """True if a retry is safe and may succeed."""
    if failure.status == RATE_LIMITED or failure.kind == BUSY:
        return True
    return call.is_retryable and failure.status in RETRYABLE


def _read(call: Call[Answer], response: Response) -> Answer:
    try:
        return call.read(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidAnswer(f"{InvalidAnswer.__doc__}: {error}", status=response.status) from error


def _unreachable(error: Exception) -> ApiUnavailable:
    if isinstance(error, asyncio.TimeoutError):
        return ApiUnavailable("the API timed out")
    return ApiUnavailable(f"the API is unreachable: {str(error) or type(error).__name__}")


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_port_valid = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InvalidApiUrl(f"invalid API URL {url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_port_valid:
        raise InvalidApiUrl(f"invalid API URL {url!r}; expected e.g. http://127.0.0.1:8420")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidApiUrl("invalid API URL; user names, queries and fragments are not allowed")
    return url.rstrip("/").removesuffix(PREFIX)


def _check_token(token: str) -> str:
    """The token, if it fits in a header. The error does not quote it, because it is a secret."""
    if not _VISIBLE.fullmatch(token):
        raise InvalidApiToken
    return token
