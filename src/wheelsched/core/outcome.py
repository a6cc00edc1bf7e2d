"""The outcomes of an attempt, and the rules that map a response to one.

Invariant: every response and every transport failure maps to exactly one outcome, and only
`Failed` may be retried.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from wheelsched.values.duration import MAX_DURATION_US, SECOND

MAX_ERROR_LENGTH: Final = 2_000

RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, *range(500, 600)})


class Succeeded(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker succeeded. There is no HTTP status if it reported by REST."""

    http_status: int | None = None


class Accepted(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker has accepted the run (202). It sends heartbeats and completes it by REST."""

    http_status: int = 202


class Failed(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The attempt failed, and a retry may succeed."""

    error: str
    http_status: int | None = None
    retry_after_us: int | None = None  # the worker's `Retry-After`, not yet clamped

    @property
    def is_too_early(self) -> bool:
        """Whether the worker did not start the attempt: its token is stale, or another attempt of
        the run is in progress. That says nothing about the handler."""
        return self.http_status == HTTPStatus.TOO_EARLY


class Rejected(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker rejected the run permanently: the run is dead at once."""

    error: str
    http_status: int | None = None


class Gone(Struct, frozen=True, kw_only=True, tag=str.lower, gc=False):
    """The worker accepts no more runs of this job (410): the run is dead and the job paused.

    There is no HTTP status if a worker that pulls reported it.
    """

    error: str
    http_status: int | None = 410


class HandedOut(Struct, frozen=True, gc=False):
    """The runs were handed to workers that pull; each worker reports an outcome later.

    It is not an outcome itself, and is never stored.
    """


HANDED_OUT: Final = HandedOut()

Outcome: TypeAlias = Succeeded | Accepted | Failed | Rejected | Gone


def status_and_error(outcome: Outcome) -> tuple[int | None, str | None]:
    """The HTTP status and the error of an outcome, for the history."""
    match outcome:
        case Succeeded() | Accepted():
            return outcome.http_status, None
        case Failed() | Rejected() | Gone():
            return outcome.http_status, outcome.error
        case never:
            assert_never(never)


class TransportFailure(StrEnum):
    """Why there is no HTTP status. The values are the texts in the history."""

    NO_CONNECTION = "no connection to the worker"
    CONNECTION_LOST = "the connection was lost before the worker responded"
    BAD_ANSWER = "the worker's response was not valid HTTP"
    TIMEOUT = "the worker did not respond before the timeout"
    HEARTBEAT_MISSED = "the worker accepted the run, but its heartbeats stopped"
    WORKER_SILENT = "the worker sent neither a heartbeat nor an outcome within 5 s of the hand-out"
    FORBIDDEN_ADDRESS = "the target's address is not allowed"


def classify(
    answer: int | TransportFailure,
    *,
    now_us: int,
    retry_after: str | None = None,
    detail: str = "",
) -> Outcome:
    """The outcome of an attempt with this HTTP status or transport failure.

    `retry_after` is the raw header. `detail` is appended to the error, e.g. the beginning of the
    response body.
    """
    match answer:
        case TransportFailure.FORBIDDEN_ADDRESS:
            return Rejected(error=_error(answer, detail))
        case TransportFailure():
            return Failed(error=_error(answer, detail))
        case 202:
            return Accepted()
        case 410:
            return Gone(error=_error(_responded(answer), detail))
    if 200 <= answer <= 299:
        return Succeeded(http_status=answer)
    error = _error(_responded(answer), detail)
    if answer in RETRYABLE_STATUSES:
        return Failed(
            error=error,
            http_status=answer,
            retry_after_us=None if retry_after is None else parse_retry_after(retry_after, now_us),
        )
    return Rejected(error=error, http_status=answer)


def reported(
    *,
    ok: bool,
    error: str = "",
    retry: bool = True,
    gone: bool = False,
    http_status: int | None = None,
) -> Outcome:
    """The outcome that a worker reports itself: by REST, by pulling, or for one run of a batch."""
    if ok:
        return Succeeded(http_status=http_status)
    error = _error(error or "the worker reported a failure")
    if gone:
        return Gone(error=error, http_status=http_status)
    if retry:
        return Failed(error=error, http_status=http_status)
    return Rejected(error=error, http_status=http_status)


_SECONDS: Final = re.compile(r"[0-9]+")


def parse_retry_after(value: str, now_us: int) -> int | None:
    """The wait that a `Retry-After` header asks for; None if it is invalid (RFC 9110, 10.2.3)."""
    value = value.strip(" \t")
    if _SECONDS.fullmatch(value):
        # Do not parse more digits than the longest duration has.
        return MAX_DURATION_US if len(value) > 12 else min(int(value) * SECOND, MAX_DURATION_US)
    if len(value) > 40:
        return None
    try:
        instant = parsedate_to_datetime(value)
        if instant.tzinfo is None:  # "-0000" or no zone; an HTTP date is in GMT
            instant = instant.replace(tzinfo=UTC)
        instant_us = int(instant.timestamp()) * SECOND
    except (ValueError, OverflowError):
        return None
    return max(instant_us - now_us, 0)


def _responded(status: int) -> str:
    try:
        return f"the worker responded with {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the worker responded with {status}"


def _error(what: str, detail: str = "") -> str:
    """An error text that can be stored: limited in length, without NUL and lone surrogates."""
    text = f"{what}: {detail}" if detail else what
    text = text[:MAX_ERROR_LENGTH].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
