"""What every error of ours is, and how errors are put into words."""


class WheelschedError(Exception):
    """wheelsched could not do what was asked"""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


def quoted(text: str) -> str:
    """What was written, in quotes; cut, because an error is not the place for a megabyte."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def first_of(error: BaseException) -> WheelschedError | None:
    """The first error of ours in what a group of tasks raised, however deep it is."""
    if isinstance(error, BaseExceptionGroup):
        found = (first_of(each) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return error if isinstance(error, WheelschedError) else None
