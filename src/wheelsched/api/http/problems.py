"""Maps errors to problem documents; one table has the HTTP status of each.

Invariant: every exception becomes exactly one `Problem`. Errors that are not in the table are bugs:
they are logged in full and reported without details. Every problem can be encoded as JSON, whatever
text it quotes.
"""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from aiohttp import web

from wheelsched import errors
from wheelsched.errors import (
    InvalidDocument,
    InvalidField,
    RateExceeded,
    RequestKeyBusy,
    WheelschedError,
)
from wheelsched.wire.problem import CONTENT_TYPE, FieldProblem, Problem

log = structlog.get_logger("wheelsched.api")

# The first match wins, so subclasses precede their base classes.
STATUSES: Final[Mapping[type[WheelschedError], int]] = {
    errors.InvalidJson: 400,
    errors.RequestUnreadable: 400,
    errors.InvalidParameter: 400,
    errors.RequestKeyInvalid: 400,
    errors.TokenMissing: 401,
    errors.TokenUnknown: 401,
    errors.ScopeMissing: 403,
    errors.OriginForeign: 403,
    errors.CallbackRefused: 403,
    errors.QuotaExceeded: 403,
    errors.JobNotFound: 404,
    errors.RunNotFound: 404,
    errors.TenantNotFound: 404,
    errors.TokenNotFound: 404,
    errors.JobNameTaken: 409,
    errors.TenantNameTaken: 409,
    errors.JobChanged: 409,
    errors.TenantChanged: 409,
    errors.JobNotPausable: 409,
    errors.JobNotPlanned: 409,
    errors.RunNotLive: 409,
    errors.TooManyRuns: 409,
    errors.RequestKeyBusy: 409,
    errors.TokenStale: 409,
    errors.ClaimExpired: 409,
    errors.IllegalMove: 409,
    errors.VersionMismatch: 412,
    errors.BodyTooLarge: 413,
    errors.ContentTypeUnknown: 415,
    errors.ContentCompressed: 415,
    errors.InvalidField: 422,
    errors.InvalidDocument: 422,
    errors.RequestKeyReused: 422,
    errors.ClaimReused: 422,
    errors.UpgradeMissing: 426,
    errors.RateExceeded: 429,
    errors.ConnectionLimitReached: 429,
    errors.HeadersTooLarge: 431,
    errors.ApiBusy: 503,
    errors.ApiStopping: 503,
    errors.WorkUnavailable: 503,
    errors.WorkerSilent: 503,
    errors.StoreUnavailable: 503,
    errors.StoreContention: 503,
    errors.StoreFull: 507,
}
RETRY_AFTER_S: Final = {503: 1}
# Not failures, although the status is 503.
REFUSALS: Final = (
    errors.ApiBusy,
    errors.ApiStopping,
    errors.WorkUnavailable,
    errors.WorkerSilent,
)

_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def problem_of(error: BaseException, *, request_id: str | None = None) -> Problem:
    """The problem document of an error."""
    match error:
        case WheelschedError():
            return _known(error, request_id)
        case web.HTTPException():
            return _plain(error.status, request_id)
        case _:
            return _plain(500, request_id)


def response_of(error: BaseException, request_id: str) -> web.Response:
    """The response to a failed request; server errors are logged."""
    problem = problem_of(error, request_id=request_id)
    log_failure(error, problem.status)
    return web.Response(
        body=msgspec.json.encode(problem),
        status=problem.status,
        content_type=CONTENT_TYPE,
        headers=dict(_headers_of(error, problem.status)),
    )


def log_failure(error: BaseException, status: int) -> None:
    """Logs an error of the server; those of the client are answered only."""
    if isinstance(error, REFUSALS):
        log.warning("request.refused", error=type(error).__name__)
    elif status >= 500:
        log.error("request.failed", error=type(error).__name__, exc_info=error)


def _known(error: WheelschedError, request_id: str | None) -> Problem:
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
    if status == 500:
        return _plain(500, request_id)
    name = _HUMP.sub("-", type(error).__name__).lower()
    return Problem(
        type=f"urn:wheelsched:problem:{name}",
        title=(type(error).__doc__ or "").strip(),
        status=status,
        # The database's own message belongs in the log only.
        detail=(type(error).__doc__ or "") if status >= 500 else _legible(str(error)),
        errors=tuple(_fields_of(error)),
        request_id=request_id,
    )


def _fields_of(error: WheelschedError) -> Iterator[FieldProblem]:
    match error:
        case InvalidDocument():
            for field in error.errors:
                yield FieldProblem(_legible(field.pointer), _legible(str(field)))
        case InvalidField():
            yield FieldProblem(_legible(error.pointer), _legible(str(error)))


def _legible(text: str) -> str:
    """The text with bytes that are not UTF-8 replaced, so that it can be encoded as JSON."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _plain(status: int, request_id: str | None) -> Problem:
    phrase = HTTPStatus(status).phrase
    detail = HTTPStatus(status).description or phrase
    return Problem(
        type="about:blank", title=phrase, status=status, detail=detail, request_id=request_id
    )


def _headers_of(error: BaseException, status: int) -> Iterator[tuple[str, str]]:
    match error:
        case RateExceeded():
            yield "Retry-After", str(error.retry_after_s)
        case RequestKeyBusy():
            yield "Retry-After", "1"
        case errors.UpgradeMissing():
            yield "Upgrade", "websocket"
            yield "Connection", "Upgrade"
        case web.HTTPMethodNotAllowed():
            yield "Allow", ", ".join(sorted(error.allowed_methods))
        case _ if status in RETRY_AFTER_S:
            yield "Retry-After", str(RETRY_AFTER_S[status])
    if status == 401:
        yield "WWW-Authenticate", 'Bearer realm="wheelsched"'
