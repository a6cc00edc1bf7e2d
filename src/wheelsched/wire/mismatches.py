"""Mismatches of a document with its type: all of them, where a decoder stops at the first.

Invariant: what is left of the document once its mismatches are taken out can be decoded, if every
required field that had to go has a stand-in. So the values of the other fields can be judged too.
"""

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from wheelsched.core.fields import escaped, unknown_fields
from wheelsched.core.problem_list import MAX_PROBLEMS
from wheelsched.errors import InvalidField, UnknownField, WrongType, quoted

MAX_POINTER: Final = 500

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


class Mismatches:
    """The problems of one document, and what stands in for required fields that are unusable."""

    def __init__(self, stand_ins: Mapping[str, bytes]) -> None:
        self.found: list[InvalidField] = []
        self._stand_ins = stand_ins

    def take_out(self, written: Raw, kind: Any, pointer: str = "") -> Raw | None:
        """The document without what does not match its type; None if nothing of it does."""
        if len(self.found) >= MAX_PROBLEMS:
            return written
        plain = _plain(kind)
        is_object = bytes(written).lstrip()[:1] == b"{"
        if is_object and isinstance(plain, type) and issubclass(plain, Struct):
            return self._from_struct(written, plain, pointer)
        if is_object and get_origin(plain) is dict:
            return self._from_mapping(written, get_args(plain)[1], pointer)
        try:
            msgspec.json.decode(written, type=kind)
        except msgspec.ValidationError as error:
            self.found.append(field_error(str(error), msgspec.json.decode(written), pointer))
            return None
        return written

    def _from_struct(self, written: Raw, kind: type[Struct], pointer: str) -> Raw:
        fields = _OBJECT.decode(written)
        known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        self.found += unknown_fields(
            fields,
            known.keys(),
            lambda name: _below(pointer, name),
            getattr(kind, "SYNONYMS", {}),
        )
        kept: dict[str, Raw] = {}
        for name, field in known.items():
            place = _below(pointer, name)
            left = self.take_out(fields[name], field.type, place) if name in fields else None
            if left is None and field.required:
                left = self._stand_in(place, is_missing=name not in fields)
            if left is not None:
                kept[name] = left
        return Raw(msgspec.json.encode(kept))

    def _from_mapping(self, written: Raw, kind: Any, pointer: str) -> Raw:
        kept = {
            name: self.take_out(value, kind, _below(pointer, name))
            for name, value in _OBJECT.decode(written).items()
        }
        return Raw(
            msgspec.json.encode({name: raw for name, raw in kept.items() if raw is not None})
        )

    def _stand_in(self, pointer: str, *, is_missing: bool) -> Raw | None:
        if is_missing:
            self.found.append(WrongType("this field is required", pointer=pointer))
        stand_in = self._stand_ins.get(pointer)
        return None if stand_in is None else Raw(stand_in)


def _below(pointer: str, name: str) -> str:
    return cut(f"{pointer}/{escaped(name[:MAX_POINTER])}")


def _plain(kind: Any) -> Any:
    """A type without its annotations, and without the None that it may be instead."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        others = [each for each in get_args(kind) if each is not NoneType]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind


def cut(pointer: str) -> str:
    """A pointer, unless the names in it are so long that nobody would read them."""
    return pointer if len(pointer) <= MAX_POINTER else f"{pointer[: MAX_POINTER - 1]}…"


# As msgspec words them.
_PLACE: Final = re.compile(r" - at `(?:key` in `)?\$(?P<path>.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")
_WORDS: Final = {
    "array": "an array",
    "bool": "a boolean",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_TYPES: Final = re.compile(f"`((?:{'|'.join(_WORDS)})(?: [|] (?:{'|'.join(_WORDS)}))*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)


def field_error(message: str, tree: object, pointer: str = "") -> InvalidField:
    """The error of a field, from the message of a decoder and the value at a pointer."""
    place = _PLACE.search(message)
    said = message if place is None else message[: place.start()]
    pointer = cut(pointer + "".join(_steps("" if place is None else place["path"], tree)))
    if missing := _MISSING.fullmatch(said):
        return WrongType("this field is required", pointer=f"{pointer}/{missing['name']}")
    if unknown := _UNKNOWN.fullmatch(said):
        name = unknown["name"]
        return UnknownField(
            f"unknown field {quoted(name)}", pointer=f"{pointer}/{escaped(name[:100])}"
        )
    said = _TYPES.sub(_in_words, said)
    return WrongType(said[:1].lower() + said[1:], pointer=pointer)


def _in_words(types: re.Match[str]) -> str:
    """Types as people call them. That a field may also be null is no news to anybody."""
    names = types[1].split(" | ")
    if len(names) > 1:
        names = [name for name in names if name != "null"]
    return " or ".join(_WORDS[name] for name in names)


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
