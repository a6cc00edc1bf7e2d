"""Reads one JSON object from a user field by field, and collects all its problems.

Invariant: reading never stops at the first problem. Each invalid field becomes one `InvalidField`
with its pointer and the expected value, and its default is used in its place. No field is ignored:
an unknown field is a problem too. A null field counts as absent.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import Final, Self, TypeVar

from wheelsched.errors import (
    FieldOutOfRange,
    InvalidDocument,
    InvalidField,
    UnknownChoice,
    UnknownField,
    WrongType,
    quoted,
)
from wheelsched.values.duration import format_duration, parse_duration
from wheelsched.values.problem_list import MAX_PROBLEMS

MAX_HINTS: Final = 5  # per document, because comparing names is slow
MAX_COMPARED_CHARS: Final = 64
MIN_SIMILARITY: Final = 0.75

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """The fields of one object. Nested objects share its list of problems."""

    def __init__(
        self,
        document: Mapping[str, object],
        *,
        pointer: str = "",
        problems: list[InvalidField] | None = None,
    ) -> None:
        self._document = document
        self._pointer = pointer
        self._known: set[str] = set()
        self.problems: list[InvalidField] = [] if problems is None else problems

    def pointer_to(self, name: str) -> str:
        return f"{self._pointer}/{escape_pointer(name)}"

    def nested(self, name: str) -> Self:
        """The fields of an object inside this one; empty if it is absent."""
        value = self._take(name, {})
        if not isinstance(value, Mapping):
            self.refuse(WrongType, name, f"{display_value(value)} is not an object")
            value = {}
        return type(self)(value, pointer=self.pointer_to(name), problems=self.problems)

    def duration(self, name: str, default_us: int, *, least_us: int, most_us: int) -> int:
        value = self._take(name, None)
        if value is None:
            return default_us
        if not isinstance(value, str):
            self.refuse(
                WrongType,
                name,
                f"{display_value(value)} is not a valid duration; write text, e.g. '90s'",
            )
            return default_us
        try:
            duration_us = parse_duration(value, pointer=self.pointer_to(name))
        except InvalidField as problem:
            self.problems.append(problem)
            return default_us
        if not least_us <= duration_us <= most_us:
            self.refuse(
                FieldOutOfRange,
                name,
                f"{quoted(value)} is out of range; "
                f"expected '{format_duration(least_us)}' to '{format_duration(most_us)}'",
            )
            return default_us
        return duration_us

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        value = self._take(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(WrongType, name, f"{display_value(value)} is not a whole number")
            return default
        if not least <= value <= most:
            self.refuse(
                FieldOutOfRange,
                name,
                f"{display_value(value)} is out of range; expected {least:,} to {most:,}",
            )
            return default
        return value

    def optional_integer(self, name: str, *, least: int, most: int) -> int | None:
        """An integer without a default: None if it is absent."""
        if self._take(name, None) is None:
            return None
        return self.integer(name, least, least=least, most=most)

    def choice(self, name: str, default: Choice) -> Choice:
        value = self._take(name, default)
        choices = type(default)
        if isinstance(value, str) and value in {choice.value for choice in choices}:
            return choices(value)
        known = ", ".join(choices)
        self.refuse(
            UnknownChoice, name, f"{display_value(value)} is not valid; must be one of: {known}"
        )
        return default

    def refuse(self, error: type[InvalidField], name: str, message: str) -> None:
        self.problems.append(error(message, pointer=self.pointer_to(name)))

    def refuse_unknown(self) -> None:
        """Report every field that was not read. Call it last."""
        self.problems += unknown_fields(self._document, self._known, self.pointer_to)

    def raise_problems(self) -> None:
        if self.problems:
            raise InvalidDocument(errors=tuple(self.problems))

    def _take(self, name: str, default: object) -> object:
        self._known.add(name)
        value = self._document.get(name)
        return default if value is None else value


def unknown_fields(
    names: Iterable[str],
    known: Collection[str],
    pointer_to: Callable[[str], str],
    synonyms: Mapping[str, str] = {},
) -> list[UnknownField]:
    """A problem for each unknown name, with the field that the user probably meant."""
    unknown = islice((name for name in names if name not in known), MAX_PROBLEMS)
    return [
        UnknownField(
            f"unknown field {quoted(name)}"
            f"{_hint(name, known, synonyms) if number < MAX_HINTS else ''}",
            pointer=pointer_to(name),
        )
        for number, name in enumerate(unknown)
    ]


def _hint(name: str, known: Collection[str], synonyms: Mapping[str, str]) -> str:
    lowered = name[:MAX_COMPARED_CHARS].lower().replace("-", "_")
    close = get_close_matches(lowered, known, n=1, cutoff=MIN_SIMILARITY)
    meant = synonyms.get(lowered) or (close[0] if close else None)
    if meant is not None:
        return f"; did you mean {quoted(meant)}?"
    return f"; known fields: {', '.join(sorted(known))}" if known else ""


def escape_pointer(name: str) -> str:
    """Escape a name for use in a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def display_value(value: object) -> str:
    """A JSON value for an error message. Long numbers and containers are only named."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case int() if value.bit_length() > 64:
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
        case Mapping():
            return "an object"
        case _:
            return "an array"
