"""Fields: one JSON object that a user wrote, read field by field.

Invariant: reading never stops at the first mistake. Each bad field becomes one `InvalidField`
with its pointer and what would be right, its default stands in for it, and nothing that was
written is ignored: a field that nobody asks for is a mistake too. A field written as null is
one that is not written.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import Final, Self, TypeVar

from wheelsched.core.duration import format_duration, parse_duration
from wheelsched.core.problem_list import MAX_PROBLEMS
from wheelsched.errors import (
    FieldOutOfRange,
    InvalidDocument,
    InvalidField,
    UnknownChoice,
    UnknownField,
    WrongType,
    quoted,
)

MAX_HINTS: Final = 5  # per document: to compare names takes longer than to read them
MAX_HINTED: Final = 64  # characters of a name
SIMILAR: Final = 0.75

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """The fields of one object; its problems are those of all objects inside it."""

    def __init__(
        self,
        written: Mapping[str, object],
        *,
        pointer: str = "",
        problems: list[InvalidField] | None = None,
    ) -> None:
        self._written = written
        self._pointer = pointer
        self._known: set[str] = set()
        self.problems: list[InvalidField] = [] if problems is None else problems

    def has(self, name: str) -> bool:
        """Whether the field is written."""
        return self._take(name, None) is not None

    def pointer_to(self, name: str) -> str:
        return f"{self._pointer}/{escaped(name)}"

    def nested(self, name: str) -> Self:
        """The fields of an object inside this one; none when it is not written."""
        written = self._take(name, {})
        if not isinstance(written, Mapping):
            self.refuse(WrongType, name, f"{shown(written)} is not an object")
            written = {}
        return type(self)(written, pointer=self.pointer_to(name), problems=self.problems)

    def duration(self, name: str, default_us: int, *, least_us: int, most_us: int) -> int:
        written = self._take(name, None)
        if written is None:
            return default_us
        if not isinstance(written, str):
            self.refuse(
                WrongType, name, f"{shown(written)} is not a duration; write text such as '90s'"
            )
            return default_us
        try:
            duration_us = parse_duration(written, pointer=self.pointer_to(name))
        except InvalidField as problem:
            self.problems.append(problem)
            return default_us
        if not least_us <= duration_us <= most_us:
            self.refuse(
                FieldOutOfRange,
                name,
                f"{quoted(written)} is out of range; "
                f"'{format_duration(least_us)}' to '{format_duration(most_us)}' is right",
            )
            return default_us
        return duration_us

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        written = self._take(name, default)
        if not isinstance(written, int) or isinstance(written, bool):
            self.refuse(WrongType, name, f"{shown(written)} is not a whole number")
            return default
        if not least <= written <= most:
            self.refuse(
                FieldOutOfRange,
                name,
                f"{shown(written)} is out of range; {least:,} to {most:,} is right",
            )
            return default
        return written

    def choice(self, name: str, default: Choice) -> Choice:
        written = self._take(name, default)
        choices = type(default)
        if isinstance(written, str) and written in {choice.value for choice in choices}:
            return choices(written)
        known = ", ".join(f"'{choice}'" for choice in choices)
        self.refuse(UnknownChoice, name, f"{shown(written)} is not one of {known}")
        return default

    def refuse(self, error: type[InvalidField], name: str, message: str) -> None:
        self.problems.append(error(message, pointer=self.pointer_to(name)))

    def refuse_the_rest(self) -> None:
        """Call it last: every field that was written and not asked for is refused."""
        self.problems += unknown_fields(self._written, self._known, self.pointer_to)

    def raise_problems(self) -> None:
        if self.problems:
            raise InvalidDocument(errors=tuple(self.problems))

    def _take(self, name: str, default: object) -> object:
        self._known.add(name)
        written = self._written.get(name)
        return default if written is None else written


def unknown_fields(
    written: Iterable[str],
    known: Collection[str],
    pointer_to: Callable[[str], str],
    synonyms: Mapping[str, str] = {},
) -> list[UnknownField]:
    """A problem for each name that is not known, with the field that was probably meant."""
    unknown = islice((name for name in written if name not in known), MAX_PROBLEMS)
    return [
        UnknownField(
            f"unknown field {quoted(name)}"
            f"{_hint(name, known, synonyms) if number < MAX_HINTS else ''}",
            pointer=pointer_to(name),
        )
        for number, name in enumerate(unknown)
    ]


def _hint(name: str, known: Collection[str], synonyms: Mapping[str, str]) -> str:
    lowered = name[:MAX_HINTED].lower().replace("-", "_")
    close = get_close_matches(lowered, known, n=1, cutoff=SIMILAR)
    meant = synonyms.get(lowered) or (close[0] if close else None)
    if meant is not None:
        return f"; did you mean {quoted(meant)}?"
    return f"; known fields: {', '.join(sorted(known))}" if known else ""


def escaped(name: str) -> str:
    """A name as a JSON pointer spells it (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def shown(written: object) -> str:
    """What was written, as JSON would say it; an integer of 5,000 digits is only named."""
    match written:
        case None:
            return "null"
        case bool():
            return str(written).lower()
        case str():
            return quoted(written)
        case int() if written.bit_length() > 64:
            return "a number of more than 64 bits"
        case int() | float():
            return str(written)
        case Mapping():
            return "an object"
        case _:
            return "an array"
