"""Decodes JSON payloads into the type that a handler declares.

Invariant: registration refuses a type that cannot be decoded from JSON. A payload that does not
match its type raises `InvalidPayload` with the position of the problem.

msgspec decodes all types except those of pydantic. A type that contains a pydantic type is decoded
by pydantic as a whole, because only pydantic runs its validators. pydantic is optional.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

import msgspec

from wheelsched.errors import InvalidPayload

Decode: TypeAlias = Callable[[bytes], object]

SUPPORTED: Final = (
    "use JSON types (dict, list, str, int, float, bool, None), datetime, UUID, enums, "
    "msgspec.Struct, dataclasses, attrs classes, TypedDict, NamedTuple or pydantic v2 models"
)
MAX_PROBLEMS: Final = 5  # in the error of one payload

_JSON_TYPES: Final = (dict, list, str, int, float, bool, types.NoneType)
_PYDANTIC_MARKS: Final = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")


def make_decoder(payload_type: Any) -> Decode:
    """Return the function that decodes payloads into a type, or raise `TypeError`."""
    if _mentions_pydantic(payload_type, set()):
        try:
            return _pydantic_decoder(payload_type)
        except ImportError:  # a class may support pydantic although it is not installed
            pass
    for each in _nodes(msgspec.inspect.type_info(payload_type), set()):
        if isinstance(each, msgspec.inspect.CustomType) and not _is_json(each.cls):
            raise TypeError(f"{each.cls!r} is not supported")
    return _msgspec_decoder(payload_type)


def _msgspec_decoder(payload_type: Any) -> Decode:
    decoder = msgspec.json.Decoder(payload_type)

    def decode(payload: bytes) -> object:
        try:
            return decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPayload(f"{InvalidPayload.__doc__}: {error}") from error

    return decode


def _pydantic_decoder(payload_type: Any) -> Decode:
    pydantic = import_module("pydantic")
    try:
        validate = pydantic.TypeAdapter(payload_type).validate_json
    except (pydantic.errors.PydanticUserError, AttributeError) as error:
        raise TypeError(str(error).partition("\n")[0]) from error

    def decode(payload: bytes) -> object:
        try:
            return validate(payload)
        except pydantic.ValidationError as error:
            # Leave out the input, which may be secret, and links to pydantic's documentation.
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            raise InvalidPayload(f"{InvalidPayload.__doc__}: {_summarise(problems)}") from error

    return decode


def _summarise(problems: Sequence[dict[str, Any]]) -> str:
    lines = [f"{each['msg']} - at `{_path(each['loc'])}`" for each in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS:,} more")
    return "; ".join(lines)


def _path(location: Sequence[int | str]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "$" + "".join(steps)


def _is_json(kind: type) -> bool:
    """Whether some JSON value is an instance of a class, e.g. of `object`."""
    return any(issubclass(each, kind) for each in _JSON_TYPES)


def _nodes(node: object, seen: set[int]) -> Iterator[object]:
    """All nodes of msgspec's description of a type."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, tuple):
        for each in node:
            yield from _nodes(each, seen)
    elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
        yield node
        for name in node.__struct_fields__:
            yield from _nodes(getattr(node, name), seen)


def _mentions_pydantic(annotation: Any, seen: set[int]) -> bool:
    """Whether a type, a part of it, or a constraint on it comes from pydantic."""
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    if any(hasattr(annotation, mark) for mark in _PYDANTIC_MARKS):
        return True
    if type(annotation).__module__.partition(".")[0] == "pydantic":  # Annotated[int, Field(gt=0)]
        return True
    return any(_mentions_pydantic(part, seen) for part in _parts(annotation))


def _parts(annotation: Any) -> Iterator[Any]:
    yield typing.get_origin(annotation)
    yield from typing.get_args(annotation)
    yield from getattr(annotation, "__metadata__", ())  # of Annotated
    for alias in ("__supertype__", "__value__"):  # of NewType; of `type X = …`
        if hasattr(annotation, alias):
            yield getattr(annotation, alias)
    if dataclasses.is_dataclass(annotation) or _is_record(annotation):
        yield from typing.get_type_hints(annotation, include_extras=True).values()


def _is_record(annotation: Any) -> bool:
    """Whether it is a NamedTuple or a TypedDict, including that of `typing_extensions`."""
    return isinstance(annotation, type) and (
        hasattr(annotation, "__required_keys__")
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )
