"""Mistakes, gathered: a user who made three is told of three.

Invariant: what a failed check leaves behind is seen by nobody, because `raise_all` comes first.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from wheelsched.errors import InvalidDocument, InvalidField

Arguments = ParamSpec("Arguments")
Checked = TypeVar("Checked")


class ProblemList:
    """The mistakes of one document."""

    def __init__(self) -> None:
        self._found: list[InvalidField] = []

    def note(
        self,
        check: Callable[Arguments, Checked],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Checked:
        """What a check gives; after a mistake None, as if that were one."""
        try:
            return check(*arguments, **options)
        except InvalidField as problem:
            self._found.append(problem)
        except InvalidDocument as problems:
            self._found += problems.errors
        return cast("Checked", None)

    def raise_all(self) -> None:
        if self._found:
            raise InvalidDocument(errors=tuple(self._found))
