"""Errors that the API client raises."""

from wheelsched.errors.base import WheelschedError
from wheelsched.errors.fields import InvalidField


class ApiError(WheelschedError):
    """the API rejected the request"""

    def __init__(
        self,
        message: str | None = None,
        *,
        status: int | None = None,
        kind: str = "about:blank",
        errors: tuple[InvalidField, ...] = (),
    ) -> None:
        details = "".join(f"; {error.pointer}: {error}" for error in errors)
        super().__init__((message or type(self).__doc__ or "") + details)
        self.status = status  # None: no response
        self.kind = kind  # the `type` of the problem document
        self.errors = errors  # the invalid fields of the request


class InvalidRequest(ApiError):
    """the API could not process the request"""


class NotAuthenticated(ApiError):
    """missing or unknown API token; set WHEELSCHED_TOKEN"""


class NotAllowed(ApiError):
    """the token does not permit this operation"""


class NotFound(ApiError):
    """not found, or it belongs to another tenant"""


class Conflict(ApiError):
    """the request conflicts with the current state"""


class NameTaken(Conflict):
    """the tenant already has a job with this name"""


class StaleToken(Conflict):
    """the run has a newer attempt or has ended"""


class EditedMeanwhile(Conflict):
    """the job has been changed since it was read"""


class QuotaUsedUp(NotAllowed):
    """the tenant has reached its job quota"""


class SecretLost(ApiError):
    """created, but the response with its secret was lost; revoke it and create another"""


class TooManyRequests(ApiError):
    """the tenant exceeded its request rate limit"""


class ApiUnavailable(ApiError):
    """the API is unreachable or unavailable"""


class InvalidApiUrl(ApiError, ValueError):
    """invalid API URL; expected e.g. http://127.0.0.1:8420"""


class InvalidApiToken(ApiError, ValueError):
    """invalid API token; expected the printable ASCII text that `wheelsched token create` prints"""


class InvalidAnswer(ApiError):
    """the response is not one that this API sends"""
