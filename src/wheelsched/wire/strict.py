"""JSON as it comes in: read more strictly than parsers do, and refused with a pointer.

Invariant: what passes means the same to every reader. No key is there twice, every number is one
that JSON knows, no text holds NUL or half a character, and nothing is nested deeper than
`MAX_DEPTH`. So what is kept byte for byte harms nobody whom it is sent to.
"""

import re
from collections.abc import Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from wheelsched.core.fields import escaped
from wheelsched.core.problem_list import ProblemList
from wheelsched.errors import InvalidField, InvalidJson, quoted
from wheelsched.wire.mismatches import MAX_POINTER, Mismatches, cut, field_error

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 1_000

Read = TypeVar("Read")
Path: TypeAlias = tuple[str | int, ...]  # the keys from the whole to a value in it


def read_strictly(body: bytes, decoder: msgspec.json.Decoder[Read]) -> Read:
    """The typed value of a body; `InvalidJson`, or what in it is unknown or of another type.

    One mismatch is raised as it is, several as one `InvalidDocument`.
    """
    read = read_what_fits(body, decoder)
    ProblemList(read[1]).raise_as_found()
    assert read[0] is not None
    return read[0]


def read_what_fits(
    body: bytes, decoder: msgspec.json.Decoder[Read], stand_ins: Mapping[str, bytes] = {}
) -> tuple[Read | None, list[InvalidField]]:
    """The typed value of a body, and every field of it that is unknown or of another type.

    Those are left out of the value. Stand-ins, by pointer, take the place of required ones; without
    them there is no value.
    """
    check_json(body)
    try:
        return decoder.decode(body), []
    except msgspec.ValidationError as error:
        mismatches = Mismatches(stand_ins)
        fitting = mismatches.take_out(Raw(body), decoder.type)
        found = mismatches.found or [field_error(str(error), None)]
    except msgspec.DecodeError as error:
        raise InvalidJson(str(error)) from None
    try:
        return None if fitting is None else decoder.decode(fitting), found
    except msgspec.ValidationError:
        return None, found


class _Flawed(ValueError):
    """The quick pass met what only the slow one can point at."""


class _Flaw(Struct, frozen=True):
    """What stands in the tree for a value that is refused."""

    message: str


def check_json(body: bytes) -> object:
    """The tree of a body, or `InvalidJson` that points at what is wrong."""
    tree = _read_back(body)
    return _look_closely(body) if tree is _UNREAD else tree


_UNREAD: Final = object()
_READER: Final = msgspec.json.Decoder()
_WRITER: Final = msgspec.json.Encoder()


def _read_back(body: bytes) -> object:
    """The tree of a body that is the same when it is written again, but for its spaces.

    Such a body has no key twice, no half character and no number that another reader would read
    otherwise: in a third of the time this finds nearly all that is right, and nothing that is not.
    """
    if b"\\u" in body or body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        return _UNREAD
    try:
        tree = _READER.decode(body)
        written = _WRITER.encode(tree)
        is_same = written == body or written == msgspec.json.format(body, indent=-1)
    except (ValueError, RecursionError):  # msgspec's own errors, and those of UTF-8, are of it too
        return _UNREAD
    return tree if is_same else _UNREAD


def _look_closely(body: bytes) -> object:
    """The same, by readers that say where they are."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the text is not UTF-8: see byte {error.start}") from None
    if not text or text.isspace():
        raise InvalidJson("there is no JSON where some is needed")
    try:
        tree, is_suspect = _decode(text)
    except JSONDecodeError as error:
        raise InvalidJson(
            f"{error.msg.lower()}: see line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise _too_deep(()) from None
    if is_suspect:
        _check_tree(tree)
    return tree


def _decode(text: str) -> tuple[object, bool]:
    """The tree of a text, and whether there may be in it what is refused."""
    try:
        return _QUICK.decode(text), "\\u" in text or "\x00" in text or _may_be_deep(text)
    except JSONDecodeError:
        raise
    except ValueError:  # ours, or the digits of a number; behind it the text may still be broken
        return _SLOW.decode(text), True


def _may_be_deep(text: str) -> bool:
    return text.count("{") + text.count("[") > MAX_DEPTH


def _check_tree(value: object, path: Path = ()) -> None:
    """Look at every value. The path to it is written out only for what is refused: its names may
    be as long as the body, and each is above as many values as the body has.
    """
    if len(path) > MAX_DEPTH:  # before the tree, which may be deeper, is too deep for this function
        raise _too_deep(path)
    match value:
        case _Flaw():
            raise InvalidJson(value.message, pointer=_pointer(path))
        case str():
            _check_text(value, path)
        case list():
            for index, item in enumerate(value):
                _check_tree(item, (*path, index))
        case dict():
            for name, item in value.items():
                _check_text(name, path)
                _check_tree(item, (*path, name))


def _check_text(text: str, path: Path) -> None:
    if "\x00" in text:
        raise InvalidJson("a text holds the character \\u0000", pointer=_pointer(path))
    if _SURROGATE.search(text):
        raise InvalidJson("a text holds half of a surrogate pair", pointer=_pointer(path))


def _too_deep(path: Path) -> InvalidJson:
    return InvalidJson(
        f"the nesting is deeper than the {MAX_DEPTH} levels that are read", pointer=_pointer(path)
    )


def _pointer(path: Path) -> str:
    return cut("".join(f"/{escaped(str(key)[:MAX_POINTER])}" for key in path))


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Flawed
    return found


def _refuse(_: str) -> object:
    raise _Flawed


def _marked(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        found[name] = _Flaw(f"{quoted(name)} is there twice") if name in found else value
    return found


def _marked_constant(written: str) -> object:
    return _Flaw(f"{written} is no number in JSON")


def _marked_integer(written: str) -> object:
    if len(written) > MAX_DIGITS:
        return _Flaw(f"a number of {len(written):,} digits is longer than {MAX_DIGITS:,}")
    return int(written)


_QUICK: Final = JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
_SLOW: Final = JSONDecoder(
    object_pairs_hook=_marked, parse_constant=_marked_constant, parse_int=_marked_integer
)
