"""The base class of all errors, and helpers for their messages."""


class WheelschedError(Exception):
    """wheelsched could not complete the operation"""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


def quoted(text: str) -> str:
    """The text in quotes, shortened so that a huge value does not fill the message."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def first_of(error: BaseException) -> WheelschedError | None:
    """The first `WheelschedError` in an exception group, at any depth."""
    if isinstance(error, BaseExceptionGroup):
        found = (first_of(each) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return error if isinstance(error, WheelschedError) else None
