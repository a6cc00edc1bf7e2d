"""Type mismatches of a document: finds all of them, where a decoder stops at the first.

Invariant: the document without its mismatches can be decoded if every removed required field has a
stand-in. So the remaining fields can be validated too.
"""

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from wheelsched.errors import InvalidField, UnknownField, WrongType, quoted
from wheelsched.values.fields import escape_pointer, unknown_fields
from wheelsched.values.problem_list import MAX_PROBLEMS

MAX_POINTER: Final = 500

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


class Mismatches:
    """The type mismatches of one document, and stand-ins for unusable fields."""

    def __init__(self, stand_ins: Mapping[str, bytes]) -> None:
        self.found: list[InvalidField] = []
        self._stand_ins = stand_ins

    def strip(self, raw: Raw, kind: Any, pointer: str = "") -> Raw | None:
        """The document without the values that do not match their type; None if nothing is left."""
        if len(self.found) >= MAX_PROBLEMS:
            return raw
        plain = _plain(kind)
        is_object = bytes(raw).lstrip()[:1] == b"{"
        if is_object and isinstance(plain, type) and issubclass(plain, Struct):
            return self._from_struct(raw, plain, pointer)
        if is_object and get_origin(plain) is dict:
            return self._from_mapping(raw, get_args(plain)[1], pointer)
        try:
            msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError as error:
            self.found.append(field_error(str(error), msgspec.json.decode(raw), pointer))
            return None
        return raw

    def _from_struct(self, raw: Raw, kind: type[Struct], pointer: str) -> Raw:
        fields = _OBJECT.decode(raw)
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
            left = self.strip(fields[name], field.type, place) if name in fields else None
            if left is None and (field.required or name in fields):
                left = self._stand_in(place, is_missing=name not in fields)
            if left is not None:
                kept[name] = left
        return Raw(msgspec.json.encode(kept))

    def _from_mapping(self, raw: Raw, kind: Any, pointer: str) -> Raw:
        kept = {
            name: self.strip(value, kind, _below(pointer, name))
            for name, value in _OBJECT.decode(raw).items()
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
    return cut(f"{pointer}/{escape_pointer(name[:MAX_POINTER])}")


def _plain(kind: Any) -> Any:
    """The type without annotations and without `| None`."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        others = [each for each in get_args(kind) if each is not NoneType]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind


def cut(pointer: str) -> str:
    """The pointer, shortened if its names are too long to be readable."""
    return pointer if len(pointer) <= MAX_POINTER else f"{pointer[: MAX_POINTER - 1]}…"


# These match msgspec's messages.
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
    """The field error for a decoder's message about the value at a pointer."""
    place = _PLACE.search(message)
    said = message if place is None else message[: place.start()]
    pointer = cut(pointer + "".join(_steps("" if place is None else place["path"], tree)))
    if missing := _MISSING.fullmatch(said):
        return WrongType("this field is required", pointer=f"{pointer}/{missing['name']}")
    if unknown := _UNKNOWN.fullmatch(said):
        name = unknown["name"]
        return UnknownField(
            f"unknown field {quoted(name)}", pointer=f"{pointer}/{escape_pointer(name[:100])}"
        )
    said = _TYPES.sub(_in_words, said)
    return WrongType(said[:1].lower() + said[1:], pointer=pointer)


def _in_words(types: re.Match[str]) -> str:
    """Type names in plain English. `null` is left out: that a field may be null needs no
    mention."""
    names = types[1].split(" | ")
    if len(names) > 1:
        names = [name for name in names if name != "null"]
    return " or ".join(_WORDS[name] for name in names)


def _steps(path: str, tree: Any) -> Iterator[str]:
    """The path as pointer tokens; only the tree tells which value of a mapping is meant."""
    for step in _STEP.finditer(path):
        if step["name"] is not None:
            key: Any = step["name"]
        elif step["index"] is not None:
            key = int(step["index"])
        else:
            key = next((name for name, value in tree.items() if not isinstance(value, str)), "")
        yield f"/{escape_pointer(str(key))}"
        try:
            tree = tree[key]
        except (LookupError, TypeError):
            return
