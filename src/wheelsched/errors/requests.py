"""Errors that the API answers requests with."""

from wheelsched.errors.base import WheelschedError


class RequestRefused(WheelschedError):
    """the request was rejected"""


class TokenMissing(RequestRefused):
    """missing `Authorization: Bearer <token>` header"""


class TokenUnknown(RequestRefused):
    """unknown or revoked token"""


class ScopeMissing(RequestRefused):
    """the token lacks the required scope"""


class OriginForeign(RequestRefused):
    """without a token, only local programs may call this API, not web pages"""


class CallbackRefused(RequestRefused):
    """a job's callback must not call wheelsched itself; the request carries callback headers"""


class ApiBusy(RequestRefused):
    """server busy; retry after 1 s"""


class ConnectionLimitReached(RequestRefused):
    """too many open connections from this address; close or reuse some"""


class RateExceeded(RequestRefused):
    """the tenant exceeded its request rate limit"""

    def __init__(self, message: str | None = None, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestUnreadable(RequestRefused):
    """malformed HTTP/1.1 request, or truncated body"""


class ContentCompressed(RequestRefused):
    """compressed bodies are not supported; send no Content-Encoding"""


class BodyTooLarge(RequestRefused):
    """the request body exceeds the limit of this operation"""


class HeadersTooLarge(RequestRefused):
    """the request headers exceed the limit"""


class ContentTypeUnknown(RequestRefused):
    """unsupported content type"""


class VersionMismatch(RequestRefused):
    """the job's version does not match If-Match"""


class RequestKeyInvalid(RequestRefused):
    """invalid Idempotency-Key; expected 1 to 255 printable ASCII characters"""


class RequestKeyReused(RequestRefused):
    """this Idempotency-Key was already used with a different request"""


class RequestKeyBusy(RequestRefused):
    """a request with this Idempotency-Key is still in progress; retry in a moment"""


class TokenStale(RequestRefused):
    """stale fencing token; the run has ended or has a newer attempt"""


class WorkUnavailable(RequestRefused):
    """this process does not hand out runs to workers that pull; connect to another API process"""


class ApiStopping(RequestRefused):
    """the API process is stopping; connect to another one"""


class WorkerSilent(RequestRefused):
    """the worker was silent for too long; reconnect"""


class ClaimExpired(RequestRefused):
    """the delivery lease of this claim has expired; claim again with a new claim_id"""


class ClaimReused(RequestRefused):
    """this claim_id was already used with a larger max_runs"""


class UpgradeMissing(RequestRefused):
    """expected a WebSocket upgrade with the subprotocol wheelsched.pull.v1"""
