"""Cursors: where a page ended, as text that means nothing to its reader.

Invariant: a cursor continues the list that gave it out, of the same tenant and with the same
filters, and any other text is refused. The mark in it is no secret, and need not be one: whoever
forges a cursor reaches nothing but their own list.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from hashlib import blake2b
from typing import Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from wheelsched.core.spec import END_US
from wheelsched.errors import InvalidCursor

MAX_CURSOR: Final = 4_096
_MARK_BYTES: Final = 12

Position = TypeVar("Position")


class Cursors:
    """The cursors of one list: of a tenant, with a name, and with filters."""

    def __init__(self, tenant_id: UUID, name: str, filters: Struct | None = None) -> None:
        self._key = msgspec.json.encode([tenant_id, name, filters])

    def write(self, position: object) -> str:
        """The cursor after a position."""
        written = msgspec.json.encode(position)
        return urlsafe_b64encode(self._mark(written) + written).decode().rstrip("=")

    def read(self, cursor: str, position: type[Position]) -> Position:
        """The position of a cursor, or `InvalidCursor`."""
        if len(cursor) > MAX_CURSOR:
            raise _invalid()
        try:
            decoded = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (NotBase64, ValueError):
            raise _invalid() from None
        mark, written = decoded[:_MARK_BYTES], decoded[_MARK_BYTES:]
        if mark != self._mark(written):
            raise _invalid()
        try:
            decoded_position = msgspec.json.decode(written, type=position)
        except msgspec.DecodeError:
            raise _invalid() from None
        if not _is_possible(decoded_position):
            raise _invalid()
        return decoded_position

    def _mark(self, written: bytes) -> bytes:
        return blake2b(self._key + written, digest_size=_MARK_BYTES).digest()


def _is_possible(position: object) -> bool:
    """Whether a list can end there: the mark alone does not say that we wrote it."""
    match position:
        case str():
            return "\x00" not in position
        case int():
            return 0 <= position < END_US
        case tuple():
            return all(map(_is_possible, position))
        case _:
            return True


def _invalid() -> InvalidCursor:
    return InvalidCursor(pointer="/cursor")
