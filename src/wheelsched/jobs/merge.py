"""JSON merge patch (RFC 7396) on encoded JSON.

Invariant: what a patch does not mention stays the same, byte for byte.
"""

from collections.abc import Container
from typing import Final

import msgspec
from msgspec import Raw

from wheelsched.jobs.fields import OPAQUE_FIELDS

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_NULL: Final = Raw(b"null")
_TARGET_KINDS: Final = frozenset({"url", "queue"})


def merge(target: Raw, patch: Raw, values: Container[str] = ()) -> Raw:
    """The target with the patch applied. In an object, null removes a field.

    Fields named in `values` are replaced as a whole, byte for byte, even if both are objects.
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


def merge_job(document: Raw, patch: Raw) -> Raw:
    """The document of a job with the patch applied. A target of another kind replaces the stored
    one as a whole."""
    stored, updated = _target_kinds(document), _target_kinds(patch)
    is_other = bool(updated) and not stored & updated
    return merge(document, patch, OPAQUE_FIELDS | {"target"} if is_other else OPAQUE_FIELDS)


def _target_kinds(document: Raw) -> set[str]:
    """Which kinds of target a document names: one, unless it is incomplete or invalid."""
    target = _OBJECT.decode(document).get("target", _NULL)
    if not _is_object(target):
        return set()
    fields = _OBJECT.decode(target)
    return {name for name in _TARGET_KINDS if bytes(fields.get(name, _NULL)) != b"null"}


def _is_object(value: Raw) -> bool:
    return bytes(value).lstrip()[:1] == b"{"
