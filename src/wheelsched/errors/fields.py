"""What a user wrote and the core refuses, field by field."""

from wheelsched.errors.base import WheelschedError


class InvalidField(WheelschedError, ValueError):
    """a field does not hold what it should"""

    def __init__(self, message: str | None = None, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer  # RFC 6901, into the document that was written


class InvalidDocument(WheelschedError, ValueError):
    """a document has fields that do not hold what they should"""

    def __init__(
        self, message: str | None = None, *, errors: tuple[InvalidField, ...] = ()
    ) -> None:
        self.errors = errors
        details = "; ".join(f"{error.pointer}: {error}" for error in self.errors)
        super().__init__(message or details)


class WrongType(InvalidField):
    """a field holds a value of another type"""


class FieldOutOfRange(InvalidField):
    """a field holds a value that is too small or too large"""


class UnknownChoice(InvalidField):
    """a field holds none of the words that it may"""


class UnknownField(InvalidField):
    """there is no such field"""


class InvalidDuration(InvalidField):
    """a duration is written as whole numbers with units, such as '90s' or '1h30m'"""


class InvalidIdempotencyKey(InvalidField):
    """an idempotency key is text with placeholders such as {{job_id}} and {{scheduled_at_unix}}"""


class BackfillTooLarge(InvalidField):
    """a backfill has more due times than one request may ask for"""


class InvalidName(InvalidField):
    """a name is text that can be shown: no control characters, and no more than it may have"""


class PayloadTooLarge(InvalidField):
    """a payload has at most 262,144 bytes"""


class InvalidJson(InvalidField):
    """this is not JSON that every reader understands alike"""


class InvalidParameter(InvalidField):
    """a parameter of the address does not hold what it should"""


class InvalidCursor(InvalidParameter):
    """this cursor is not one that this list gave out: begin again without one"""


class InvalidUrl(InvalidField):
    """a target's URL is absolute, such as https://example.org/hooks/report"""


class TargetForbidden(InvalidField):
    """the target is at an address or a port that callbacks may not go to"""


class InvalidHeader(InvalidField):
    """a header of a target has a name of its own and a value of printable ASCII"""


class InvalidRunId(WheelschedError, ValueError):
    """a run id is the job id in 32 hex digits, '-', and the due time in microseconds"""
