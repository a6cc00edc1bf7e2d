"""Strict JSON parsing: rejects what parsers disagree about, with a pointer to it.

Invariant: accepted JSON means the same to every parser. It has no duplicate key, no NaN or
Infinity, no NUL, no lone surrogate, and is nested at most `MAX_DEPTH` deep. So payloads can be
stored and forwarded byte for byte.
"""

import re
from collections.abc import Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from wheelsched.errors import InvalidField, InvalidJson, quoted
from wheelsched.values.fields import escape_pointer
from wheelsched.values.problem_list import ProblemList
from wheelsched.wire.mismatches import MAX_POINTER, Mismatches, cut, field_error

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 1_000

Read = TypeVar("Read")
Path: TypeAlias = tuple[str | int, ...]  # the keys from the root to a value


def read_strictly(body: bytes, decoder: msgspec.json.Decoder[Read]) -> Read:
    """Decodes a body, or raises `InvalidJson`, or reports its unknown and mistyped fields.

    One mismatch is raised as such, several as one `InvalidDocument`.
    """
    read = read_what_fits(body, decoder)
    ProblemList(read[1]).raise_single_or_all()
    assert read[0] is not None
    return read[0]


def read_what_fits(
    body: bytes, decoder: msgspec.json.Decoder[Read], stand_ins: Mapping[str, bytes] = {}
) -> tuple[Read | None, list[InvalidField]]:
    """Decodes a body as far as possible; also returns every unknown or mistyped field.

    Those fields are left out of the value, or replaced by stand-ins, by pointer. If a required one
    has no stand-in, there is no value.
    """
    check_json(body)
    try:
        return decoder.decode(body), []
    except msgspec.ValidationError as error:
        mismatches = Mismatches(stand_ins)
        fitting = mismatches.strip(Raw(body), decoder.type)
        found = mismatches.found or [field_error(str(error), None)]
    except msgspec.DecodeError as error:
        raise InvalidJson(str(error)) from None
    try:
        return None if fitting is None else decoder.decode(fitting), found
    except msgspec.ValidationError:
        return None, found


class _Flawed(ValueError):
    """The fast pass found something that only the slow pass can point at."""


class _Flaw(Struct, frozen=True):
    """A placeholder in the tree for a rejected value."""

    message: str


def check_json(body: bytes) -> object:
    """The tree of a body, or `InvalidJson` with a pointer to the problem."""
    tree = _read_back(body)
    return _look_closely(body) if tree is _UNREAD else tree


_UNREAD: Final = object()
_READER: Final = msgspec.json.Decoder()
_WRITER: Final = msgspec.json.Encoder()


def _read_back(body: bytes) -> object:
    """The tree of a body that survives a round trip through the encoder, apart from whitespace.

    Such a body has no duplicate key, no lone surrogate and no number that another parser might read
    differently. This takes a third of the time and covers nearly all valid bodies.
    """
    if b"\\u" in body or body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        return _UNREAD
    try:
        tree = _READER.decode(body)
        encoded = _WRITER.encode(tree)
        is_same = encoded == body or encoded == msgspec.json.format(body, indent=-1)
    except (ValueError, RecursionError):  # includes those of msgspec and of UTF-8
        return _UNREAD
    return tree if is_same else _UNREAD


def _look_closely(body: bytes) -> object:
    """The same tree, by parsers that report positions."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"invalid UTF-8 at byte {error.start}") from None
    if not text or text.isspace():
        raise InvalidJson("expected JSON, got an empty text")
    try:
        tree, is_suspect = _decode(text)
    except JSONDecodeError as error:
        raise InvalidJson(
            f"{error.msg.lower()} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise _too_deep(()) from None
    if is_suspect:
        _check_tree(tree)
    return tree


def _decode(text: str) -> tuple[object, bool]:
    """The tree of a text, and whether it needs a closer check."""
    try:
        return _QUICK.decode(text), "\\u" in text or "\x00" in text or _may_be_deep(text)
    except JSONDecodeError:
        raise
    except ValueError:  # _Flawed or too many digits; the rest of the text may still be broken
        return _SLOW.decode(text), True


def _may_be_deep(text: str) -> bool:
    return text.count("{") + text.count("[") > MAX_DEPTH


def _check_tree(value: object, path: Path = ()) -> None:
    """Checks every value of the tree.

    The path is rendered only for a rejected value: rendering it for every value could cost the
    square of the body's size.
    """
    if len(path) > MAX_DEPTH:  # before the recursion limit is reached
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
        raise InvalidJson("strings must not contain \\u0000", pointer=_pointer(path))
    if _SURROGATE.search(text):
        raise InvalidJson("strings must not contain a lone surrogate", pointer=_pointer(path))


def _too_deep(path: Path) -> InvalidJson:
    return InvalidJson(f"nested deeper than {MAX_DEPTH} levels", pointer=_pointer(path))


def _pointer(path: Path) -> str:
    return cut("".join(f"/{escape_pointer(str(key)[:MAX_POINTER])}" for key in path))


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
        found[name] = _Flaw(f"duplicate key {quoted(name)}") if name in found else value
    return found


def _marked_constant(text: str) -> object:
    return _Flaw(f"{text} is not a valid JSON number")


def _marked_integer(text: str) -> object:
    if len(text) > MAX_DIGITS:
        return _Flaw(f"a number has {len(text):,} digits; at most {MAX_DIGITS:,} are allowed")
    return int(text)


_QUICK: Final = JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
_SLOW: Final = JSONDecoder(
    object_pairs_hook=_marked, parse_constant=_marked_constant, parse_int=_marked_integer
)
