"""JSON as it comes in: read more strictly than parsers do, and refused with a pointer.

Invariant: what passes means the same to every reader. No key is there twice, every number is one
that JSON knows, no text holds NUL or half a character, and nothing is nested deeper than
`MAX_DEPTH`. So what is kept byte for byte harms nobody whom it is sent to.
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from wheelsched.core.fields import escaped
from wheelsched.errors import InvalidField, InvalidJson, UnknownField, WrongType, quoted

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 1_000
MAX_POINTER: Final = 500

Read = TypeVar("Read")
Path: TypeAlias = tuple[str | int, ...]  # the keys from the whole to a value in it


def read_strictly(body: bytes, decoder: msgspec.json.Decoder[Read]) -> Read:
    """What a body says as a typed value; `InvalidJson`, or the field that is of another type."""
    tree = check_json(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise field_error(str(error), tree) from None
    except msgspec.DecodeError as error:
        raise InvalidJson(str(error)) from None


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
    return _cut("".join(f"/{escaped(str(key)[:MAX_POINTER])}" for key in path))


def _cut(pointer: str) -> str:
    """A pointer, unless the names in it are so long that nobody would read them."""
    return pointer if len(pointer) <= MAX_POINTER else f"{pointer[: MAX_POINTER - 1]}…"


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

# As msgspec words them.
_PLACE: Final = re.compile(r" - at `(?:key` in `)?\$(?P<path>.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)


def field_error(message: str, tree: object) -> InvalidField:
    """The error of a field, from the message of a decoder and what it decoded."""
    place = _PLACE.search(message)
    said = message if place is None else message[: place.start()]
    pointer = _cut("".join(_steps("" if place is None else place["path"], tree)))
    if missing := _MISSING.fullmatch(said):
        return WrongType("this field is required", pointer=f"{pointer}/{missing['name']}")
    if unknown := _UNKNOWN.fullmatch(said):
        name = unknown["name"]
        return UnknownField(
            f"there is no field {quoted(name)}", pointer=f"{pointer}/{escaped(name[:100])}"
        )
    return WrongType(said[:1].lower() + said[1:], pointer=pointer)


def _steps(path: str, tree: Any) -> Iterator[str]:
    """The path as pointer tokens; which value of a mapping is meant, only the tree knows."""
    for step in _STEP.finditer(path):
        if step["name"] is not None:
            key: Any = step["name"]
        elif step["index"] is not None:
            key = int(step["index"])
        else:
            key = next((name for name, value in tree.items() if not isinstance(value, str)), "")
        yield f"/{escaped(str(key))}"
        try:
            tree = tree[key]
        except (LookupError, TypeError):
            return
