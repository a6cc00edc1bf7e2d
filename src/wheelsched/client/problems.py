"""Error responses as exceptions.

Invariant: every response that is not a success becomes one `ApiError`, whether it comes from the
API or from a proxy in front of it.
"""

from http import HTTPStatus
from typing import Final

import msgspec

from wheelsched import errors
from wheelsched.errors import ApiError, InvalidField
from wheelsched.wire.problem import Problem

_URN: Final = "urn:wheelsched:problem:"

# Problem types that callers handle; all others map by status.
KINDS: Final[dict[str, type[ApiError]]] = {
    "job-name-taken": errors.NameTaken,
    "tenant-name-taken": errors.NameTaken,
    "token-stale": errors.StaleToken,
    "quota-exceeded": errors.QuotaUsedUp,
}
STATUSES: Final[dict[int, type[ApiError]]] = {
    401: errors.NotAuthenticated,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.EditedMeanwhile,
    429: errors.TooManyRequests,
}

BUSY: Final = "request-key-busy"  # the first copy of this request is still in progress
_SHOWN: Final = 200


def read_problem(status: int, body: bytes) -> ApiError:
    """The exception for an error response."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _foreign(status, body)
    kind = problem.type.removeprefix(_URN)
    fields = tuple(InvalidField(field.detail, pointer=field.pointer) for field in problem.errors)
    error = KINDS.get(kind) or _by_status(status)
    return error(problem.detail or problem.title, status=status, kind=kind, errors=fields)


def _foreign(status: int, body: bytes) -> ApiError:
    """The error for a response from a proxy or another server."""
    shown = body[:_SHOWN].decode("utf-8", "replace")
    try:
        phrase = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = str(status)
    return _by_status(status)(f"unexpected response {phrase}: {shown}", status=status)


def _by_status(status: int) -> type[ApiError]:
    if status in STATUSES:
        return STATUSES[status]
    if 400 <= status <= 499:
        return errors.InvalidRequest
    return errors.ApiUnavailable if status >= 500 else errors.InvalidAnswer
