"""JSON merge patch (RFC 7396), on JSON as it was written, and beside values that are no documents.

Invariant: what a patch does not name stays byte for byte.
"""

from collections.abc import Container
from typing import Final

import msgspec
from msgspec import Raw

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_NULL: Final = Raw(b"null")


def merge(target: Raw, patch: Raw, values: Container[str] = ()) -> Raw:
    """The target with the patch applied; in an object, null removes.

    Fields named in `values` are replaced whole, and what is written in them stays byte for byte.
    """
    if not _is_object(patch):
        return patch
    merged = _OBJECT.decode(target) if _is_object(target) else {}
    for name, value in _OBJECT.decode(patch).items():
        if bytes(value) == b"null":
            merged.pop(name, None)
        elif name in values:
            merged[name] = value
        else:
            merged[name] = merge(merged.get(name, _NULL), value)
    return Raw(msgspec.json.encode(merged))


def _is_object(written: Raw) -> bool:
    return bytes(written).lstrip()[:1] == b"{"
