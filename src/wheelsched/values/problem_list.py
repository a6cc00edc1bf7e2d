"""Collects the problems of one document, so that the user sees all of them at once.

Invariant: `raise_all` runs before any checked value is used, so a failed check leaves no trace.
"""

from collections.abc import Callable, Iterable
from typing import Final, ParamSpec, TypeVar, cast

from wheelsched.errors import InvalidDocument, InvalidField

# Per document. Nobody reads more, and it bounds the response to a bulk request.
MAX_PROBLEMS: Final = 50

Arguments = ParamSpec("Arguments")
Checked = TypeVar("Checked")


class ProblemList:
    """The problems of one document."""

    def __init__(self, found: Iterable[InvalidField] = ()) -> None:
        self.found = list(found)

    def __bool__(self) -> bool:
        return bool(self.found)

    def note(
        self,
        check: Callable[Arguments, Checked],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Checked:
        """Run a check and return its result, or record its problem.

        After a problem it returns None. The type ignores that, because `raise_all` follows.
        """
        try:
            return check(*arguments, **options)
        except InvalidField as problem:
            self.found.append(problem)
        except InvalidDocument as problems:
            self.found += problems.errors
        return cast("Checked", None)

    def raise_all(self) -> None:
        """Raise `InvalidDocument` if there are problems."""
        if self.found:
            raise InvalidDocument(errors=tuple(self.found[:MAX_PROBLEMS]))

    def raise_single_or_all(self) -> None:
        """Like `raise_all`, but raise a single problem as itself."""
        if len(self.found) == 1:
            raise self.found[0]
        self.raise_all()
