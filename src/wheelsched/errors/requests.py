"""What the API refuses of a request."""

from wheelsched.errors.base import WheelschedError


class RequestRefused(WheelschedError):
    """the request cannot be answered"""


class TokenMissing(RequestRefused):
    """say who you are: Authorization: Bearer, and a token"""


class TokenUnknown(RequestRefused):
    """this token is unknown, or was revoked"""


class ScopeMissing(RequestRefused):
    """the token does not have the scope that this needs"""


class OriginForeign(RequestRefused):
    """without a token only programs of this machine are answered, and no page of a browser"""


class CallbackRefused(RequestRefused):
    """a callback of a job must not call wheelsched itself: the request carries its headers"""


class ApiBusy(RequestRefused):
    """server busy; retry after 1 s"""


class ConnectionLimitReached(RequestRefused):
    """too many connections from this address are open; close or reuse some"""


class RateExceeded(RequestRefused):
    """the tenant asks more often than its quota allows"""

    def __init__(self, message: str | None = None, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestUnreadable(RequestRefused):
    """this is no request of HTTP/1.1, or a body that ends before its end"""


class ContentCompressed(RequestRefused):
    """the API reads bodies as they are: send them without a Content-Encoding"""


class BodyTooLarge(RequestRefused):
    """the body of the request is larger than this call reads"""


class HeadersTooLarge(RequestRefused):
    """the headers of the request are larger than the API reads"""


class ContentTypeUnknown(RequestRefused):
    """this call does not read a body of this content type"""


class VersionMismatch(RequestRefused):
    """the job has another version than If-Match asks for"""


class RequestKeyInvalid(RequestRefused):
    """an Idempotency-Key has 1 to 255 printable ASCII characters"""


class RequestKeyReused(RequestRefused):
    """this Idempotency-Key came before with another request"""


class RequestKeyBusy(RequestRefused):
    """the request with this Idempotency-Key is being answered: ask again in a moment"""


class TokenStale(RequestRefused):
    """this token is stale: the run has ended, or another attempt was made since"""
