"""JSON encoding of request bodies.

Invariant: NaN and infinities are rejected; msgspec would silently encode them as null.
"""

from collections.abc import Iterator
from math import isfinite

import msgspec

from wheelsched.errors import InvalidJson, InvalidRequest
from wheelsched.values.fields import escape_pointer


def write_json(body: object, *, pointer: str = "") -> bytes:
    """Encodes a body, or raises `InvalidRequest`; `pointer` is its place in a larger request."""
    encoded = msgspec.json.encode(body)
    if b"null" in encoded:  # otherwise there can be no such float
        tree = msgspec.to_builtins(body, str_keys=True, enc_hook=_skip_raw)
        errors = tuple(_errors(tree, pointer))
        if errors:
            raise InvalidRequest(errors=errors)
    return encoded


def _skip_raw(raw: object) -> None:
    """Skips values that are already JSON."""


def _errors(tree: object, pointer: str) -> Iterator[InvalidJson]:
    match tree:
        case float() if not isfinite(tree):
            yield InvalidJson(f"{tree} is not a valid JSON number", pointer=pointer)
        case dict():
            for name, value in tree.items():
                yield from _errors(value, f"{pointer}/{escape_pointer(name)}")
        case list() | tuple():
            for index, value in enumerate(tree):
                yield from _errors(value, f"{pointer}/{index}")
