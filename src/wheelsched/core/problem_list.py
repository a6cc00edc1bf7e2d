"""Problems of one document, collected: someone who made three mistakes is told of three.

Invariant: values that a failed check leaves behind are never used, because `raise_all` comes first.
"""

from collections.abc import Callable, Iterable
from typing import Final, ParamSpec, TypeVar, cast

from wheelsched.errors import InvalidDocument, InvalidField

# Of one document: nobody reads more, and the answer to a bulk stays within bounds.
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
        """What a check returns; None after a problem, typed as if that could not happen."""
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

    def raise_as_found(self) -> None:
        """The same, but a single problem is raised as it is."""
        if len(self.found) == 1:
            raise self.found[0]
        self.raise_all()
