"""Maps errors to gRPC statuses, by way of the HTTP status that they have.

Invariant: every exception becomes exactly one status. Errors of the server are reported without
details.
"""

from typing import Final, NamedTuple

from grpc import StatusCode

from wheelsched.api.http.problems import problem_of
from wheelsched.errors import RateExceeded

CODES: Final = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    409: StatusCode.FAILED_PRECONDITION,
    413: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    503: StatusCode.UNAVAILABLE,
    507: StatusCode.UNAVAILABLE,
}
PUSHBACK: Final = "grpc-retry-pushback-ms"  # retries of gRPC clients honour it


class Status(NamedTuple):
    """The end of a call that failed; `http_status` is for the metrics."""

    code: StatusCode
    details: str
    http_status: int
    metadata: tuple[tuple[str, str], ...] = ()


def status_of(error: Exception) -> Status:
    """The status of an error."""
    problem = problem_of(error)
    details = problem.detail
    if problem.errors:
        details = "; ".join(
            f"{name}: {each.detail}" if (name := each.pointer.lstrip("/")) else each.detail
            for each in problem.errors
        )
    metadata: tuple[tuple[str, str], ...] = ()
    if isinstance(error, RateExceeded):
        metadata = ((PUSHBACK, str(error.retry_after_s * 1_000)),)
    code = CODES.get(problem.status, StatusCode.INTERNAL)
    return Status(code, details, problem.status, metadata)
