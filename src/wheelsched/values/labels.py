"""Checks names and tags, which appear in lists, logs and headers.

Invariant: an accepted text can be displayed anywhere. It cannot break a line, and cannot hide or
reverse the text beside it. Markup is allowed: the code that displays it must escape it.
"""

import re
from collections.abc import Mapping
from typing import Final

from wheelsched.errors import InvalidField, InvalidName, quoted
from wheelsched.values.fields import escape_pointer
from wheelsched.values.problem_list import ProblemList

MAX_NAME: Final = 255
MAX_TAGS: Final = 32
MAX_TAG_NAME: Final = 64
MAX_TAG_VALUE: Final = 255

# Control characters, line and paragraph separators, lone surrogates, bidirectional controls and
# the byte order mark.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def check_name(name: str, *, pointer: str = "/name") -> str:
    """Return the name unchanged, or raise `InvalidName`."""
    _check_length(name, 1, MAX_NAME, pointer)
    if name != name.strip():
        raise InvalidName("a name must not begin or end with a space", pointer=pointer)
    _check_printable(name, pointer)
    return name


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags unchanged, or raise `InvalidName`."""
    if len(tags) > MAX_TAGS:
        raise InvalidName(
            f"too many tags: {len(tags)}; at most {MAX_TAGS} are allowed", pointer="/tags"
        )
    problems: list[InvalidField] = []
    for name, value in tags.items():
        try:
            _check_tag(name, value)
        except InvalidName as problem:
            problems.append(problem)
    if problems:
        ProblemList(problems).raise_single_or_all()
    return dict(tags)


def _check_tag(name: str, value: str) -> None:
    pointer = f"/tags/{escape_pointer(name[:MAX_TAG_NAME])}"
    _check_length(name, 1, MAX_TAG_NAME, pointer)
    if ":" in name:
        raise InvalidName(
            "a tag name must not contain a colon, because filters are written name:value",
            pointer=pointer,
        )
    _check_length(value, 0, MAX_TAG_VALUE, pointer)
    _check_printable(name, pointer)
    _check_printable(value, pointer)


def _check_length(text: str, least: int, most: int, pointer: str) -> None:
    if not least <= len(text) <= most:
        raise InvalidName(
            f"{quoted(text)} has {len(text):,} characters; expected {least} to {most}",
            pointer=pointer,
        )


def _check_printable(text: str, pointer: str) -> None:
    if found := _UNPRINTABLE.search(text):
        raise InvalidName(
            f"the character U+{ord(found[0]):04X} is not allowed, because it cannot be displayed "
            "safely; remove it",
            pointer=pointer,
        )
