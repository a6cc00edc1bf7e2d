"""What the API answers to its client."""

from wheelsched.errors.base import WheelschedError
from wheelsched.errors.fields import InvalidField


class ApiError(WheelschedError):
    """the API did not do what was asked"""

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
        self.status = status  # None: there was no answer
        self.kind = kind  # the type of the problem
        self.errors = errors  # what is wrong with the fields of the request, and where


class InvalidRequest(ApiError):
    """the API cannot use the request as it is"""


class NotAuthenticated(ApiError):
    """the API knows no such token: set WHEELSCHED_TOKEN"""


class NotAllowed(ApiError):
    """the token does not allow this"""


class NotFound(ApiError):
    """there is no such thing, or it belongs to another tenant"""


class Conflict(ApiError):
    """what was asked for does not go together with what is there"""


class NameTaken(Conflict):
    """the tenant has a job of this name already"""


class StaleToken(Conflict):
    """the run has a later attempt, or has ended"""


class EditedMeanwhile(Conflict):
    """the job was edited by somebody else since it was read"""


class QuotaUsedUp(NotAllowed):
    """the tenant has as many jobs as it may have"""


class SecretLost(ApiError):
    """it was made, but the answer with its secret was lost: end it, and make another"""


class TooManyRequests(ApiError):
    """the tenant asks more often than it may"""


class ApiUnavailable(ApiError):
    """the API could not be reached, or could not answer"""


class InvalidApiUrl(ApiError, ValueError):
    """the API is reached by an address such as http://127.0.0.1:8420"""


class InvalidApiToken(ApiError, ValueError):
    """a token is what `wheelsched token create` shows: visible ASCII, no space, no line end"""


class InvalidAnswer(ApiError):
    """the answer is not one of this API"""
