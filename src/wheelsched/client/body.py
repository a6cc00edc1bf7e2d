"""What a call carries, as JSON.

Invariant: what is sent is what was given. A float that JSON has no word for is refused: msgspec
would write null for it.
"""

from collections.abc import Iterator
from math import isfinite

import msgspec

from wheelsched.core.fields import escaped
from wheelsched.errors import InvalidJson, InvalidRequest


def write_json(body: object, *, pointer: str = "") -> bytes:
    """A body as it is sent, or `InvalidRequest`; `pointer` is where it stands among others."""
    written = msgspec.json.encode(body)
    if b"null" in written:  # else there was no such float, and nothing to look through
        tree = msgspec.to_builtins(body, str_keys=True, enc_hook=_stand_in)
        errors = tuple(_errors(tree, pointer))
        if errors:
            raise InvalidRequest(errors=errors)
    return written


def _stand_in(raw: object) -> None:
    """For what is JSON already."""


def _errors(tree: object, pointer: str) -> Iterator[InvalidJson]:
    match tree:
        case float() if not isfinite(tree):
            yield InvalidJson(f"{tree} is no number in JSON", pointer=pointer)
        case dict():
            for name, value in tree.items():
                yield from _errors(value, f"{pointer}/{escaped(name)}")
        case list() | tuple():
            for index, value in enumerate(tree):
                yield from _errors(value, f"{pointer}/{index}")
