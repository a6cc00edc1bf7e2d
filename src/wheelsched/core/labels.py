"""Names and tags: text that people give to things and meet again in lists, logs and headers.

Invariant: what is accepted can be shown anywhere without breaking a line, hiding or turning round
what stands beside it. Markup is text like any other: whoever shows it escapes it.
"""

import re
from collections.abc import Mapping
from typing import Final

from wheelsched.core.fields import escaped
from wheelsched.core.problem_list import ProblemList
from wheelsched.errors import InvalidField, InvalidName, quoted

MAX_NAME: Final = 255
MAX_TAGS: Final = 32
MAX_TAG_NAME: Final = 64
MAX_TAG_VALUE: Final = 255

# Control characters, line and paragraph separators, half characters, the marks that turn the
# direction of writing, and the mark of the order of bytes.
_UNSHOWABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def check_name(name: str, *, pointer: str = "/name") -> str:
    """A name that can be shown, as it was written, or `InvalidName`."""
    _check_length(name, 1, MAX_NAME, pointer)
    if name != name.strip():
        raise InvalidName("a name has no space at its ends, and more than spaces", pointer=pointer)
    _check_showable(name, pointer)
    return name


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags that can be shown and searched, or `InvalidName`."""
    if len(tags) > MAX_TAGS:
        raise InvalidName(f"{len(tags)} tags are too many; at most {MAX_TAGS}", pointer="/tags")
    problems: list[InvalidField] = []
    for name, value in tags.items():
        try:
            _check_tag(name, value)
        except InvalidName as problem:
            problems.append(problem)
    if problems:
        ProblemList(problems).raise_as_found()
    return dict(tags)


def _check_tag(name: str, value: str) -> None:
    pointer = f"/tags/{escaped(name[:MAX_TAG_NAME])}"
    _check_length(name, 1, MAX_TAG_NAME, pointer)
    if ":" in name:
        raise InvalidName(
            "the name of a tag has no colon: lists are narrowed by name:value", pointer=pointer
        )
    _check_length(value, 0, MAX_TAG_VALUE, pointer)
    _check_showable(name, pointer)
    _check_showable(value, pointer)


def _check_length(text: str, least: int, most: int, pointer: str) -> None:
    if not least <= len(text) <= most:
        raise InvalidName(
            f"{quoted(text)} has {len(text):,} characters; {least} to {most} are right",
            pointer=pointer,
        )


def _check_showable(text: str, pointer: str) -> None:
    if found := _UNSHOWABLE.search(text):
        raise InvalidName(
            f"the character U+{ord(found[0]):04X} cannot be shown safely; leave it out",
            pointer=pointer,
        )
