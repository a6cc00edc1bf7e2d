"""Validation errors, each with a pointer to the invalid field."""

from wheelsched.errors.base import WheelschedError


class InvalidField(WheelschedError, ValueError):
    """invalid value"""

    def __init__(self, message: str | None = None, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer  # JSON pointer (RFC 6901) into the user's document


class InvalidDocument(WheelschedError, ValueError):
    """the document has invalid fields"""

    def __init__(
        self, message: str | None = None, *, errors: tuple[InvalidField, ...] = ()
    ) -> None:
        self.errors = errors
        details = "; ".join(f"{error.pointer}: {error}" for error in self.errors)
        super().__init__(message or details)


class WrongType(InvalidField):
    """the value has the wrong type"""


class FieldOutOfRange(InvalidField):
    """the value is out of range"""


class UnknownChoice(InvalidField):
    """the value is not one of the allowed values"""


class UnknownField(InvalidField):
    """unknown field"""


class InvalidDuration(InvalidField):
    """invalid duration; expected whole numbers with units, e.g. '90s' or '1h30m'"""


class InvalidIdempotencyKey(InvalidField):
    """invalid idempotency key; placeholders look like {{job_id}} and {{scheduled_at_unix}}"""


class BackfillTooLarge(InvalidField):
    """the backfill has more due times than one request may add"""


class InvalidName(InvalidField):
    """invalid name; control characters are not allowed, and its length is limited"""


class PayloadTooLarge(InvalidField):
    """the payload exceeds 262,144 bytes"""


class InvalidJson(InvalidField):
    """invalid or ambiguous JSON"""


class InvalidParameter(InvalidField):
    """invalid query parameter"""


class InvalidCursor(InvalidParameter):
    """invalid cursor; start again without one"""


class InvalidUrl(InvalidField):
    """invalid target URL; expected an absolute URL, e.g. https://example.org/hooks/report"""


class TargetForbidden(InvalidField):
    """callbacks to the address or port of this target are not allowed"""


class InvalidHeader(InvalidField):
    """invalid header; names must be unique and values printable ASCII"""


class InvalidRunId(WheelschedError, ValueError):
    """invalid run id; expected the job id in 32 hex digits, '-', and the due time in µs"""
