"""Outcomes: what an attempt came back with, as values, and how an answer becomes one.

Invariant: every answer and every failure of the transport is exactly one outcome, and only
`Failed` may be tried again.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from wheelsched.core.duration import MAX_DURATION_US, SECOND

MAX_ERROR_LENGTH: Final = 2_000

RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, *range(500, 600)})


class Succeeded(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker did it. No HTTP status when it said so by REST."""

    http_status: int | None = None


class Accepted(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker has begun (202), will heartbeat, and completes by REST."""

    http_status: int = 202


class Failed(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The attempt failed in a way that another attempt may mend."""

    error: str
    http_status: int | None = None
    retry_after_us: int | None = None  # how long the worker asked us to wait, not yet clamped


class Rejected(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker will never do it: the run is dead at once."""

    error: str
    http_status: int | None = None


class Gone(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker wants no more runs of this job (410): the run is dead and the job paused."""

    error: str
    http_status: int = 410


Outcome: TypeAlias = Succeeded | Accepted | Failed | Rejected | Gone


def told(outcome: Outcome) -> tuple[int | None, str | None]:
    """What the history says of an outcome: the HTTP status, and the error."""
    match outcome:
        case Succeeded() | Accepted():
            return outcome.http_status, None
        case Failed() | Rejected() | Gone():
            return outcome.http_status, outcome.error
        case never:
            assert_never(never)


class TransportFailure(StrEnum):
    """Why there is no HTTP status. The words are what the history says."""

    NO_CONNECTION = "no connection to the worker"
    CONNECTION_LOST = "the connection was lost before the worker had answered"
    BAD_ANSWER = "the worker's answer was not HTTP"
    TIMEOUT = "the worker did not answer before the timeout"
    HEARTBEAT_MISSED = "the worker had accepted the run and then went silent"
    FORBIDDEN_ADDRESS = "the target's address is not allowed"


def classify(
    answer: int | TransportFailure,
    *,
    now_us: int,
    retry_after: str | None = None,
    detail: str = "",
) -> Outcome:
    """The outcome of an attempt: of its HTTP status, or of what kept it from having one.

    `retry_after` is the header as it came; `detail` is what else is known, such as the
    beginning of the answer's body.
    """
    match answer:
        case TransportFailure.FORBIDDEN_ADDRESS:
            return Rejected(error=_error(answer, detail))
        case TransportFailure():
            return Failed(error=_error(answer, detail))
        case 202:
            return Accepted()
        case 410:
            return Gone(error=_error(_answered(answer), detail))
    if 200 <= answer <= 299:
        return Succeeded(http_status=answer)
    error = _error(_answered(answer), detail)
    if answer in RETRYABLE_STATUSES:
        return Failed(
            error=error,
            http_status=answer,
            retry_after_us=None if retry_after is None else parse_retry_after(retry_after, now_us),
        )
    return Rejected(error=error, http_status=answer)


def reported(
    *, ok: bool, error: str = "", retry: bool = True, http_status: int | None = None
) -> Outcome:
    """The outcome that a worker names itself, by REST or for one run of a batch."""
    if ok:
        return Succeeded(http_status=http_status)
    error = _error(error or "the worker reported a failure")
    if retry:
        return Failed(error=error, http_status=http_status)
    return Rejected(error=error, http_status=http_status)


_SECONDS: Final = re.compile(r"[0-9]+")


def parse_retry_after(value: str, now_us: int) -> int | None:
    """How long a `Retry-After` header asks to wait; None when it is not one (RFC 9110, 10.2.3)."""
    value = value.strip(" \t")
    if _SECONDS.fullmatch(value):
        # More digits than the longest duration has would only cost time to read.
        return MAX_DURATION_US if len(value) > 12 else min(int(value) * SECOND, MAX_DURATION_US)
    if len(value) > 40:
        return None
    try:
        instant = parsedate_to_datetime(value)
        if instant.tzinfo is None:  # "-0000", or no zone at all: an HTTP date is in GMT
            instant = instant.replace(tzinfo=UTC)
        instant_us = int(instant.timestamp()) * SECOND
    except (ValueError, OverflowError):
        return None
    return max(instant_us - now_us, 0)


def _answered(status: int) -> str:
    try:
        return f"the worker answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the worker answered {status}"


def _error(what: str, detail: str = "") -> str:
    """An error that any store can keep: bounded, no NUL, no lone surrogates."""
    text = f"{what}: {detail}" if detail else what
    text = text[:MAX_ERROR_LENGTH].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
