"""Cursors: opaque text that marks the end of a page.

Invariant: a cursor is valid only for the list, tenant and filters that it was issued for. Its
checksum is not a security measure: a forged cursor reaches nothing but the caller's own list.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from hashlib import blake2b
from typing import Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from wheelsched.errors import InvalidCursor
from wheelsched.schedule.spec import END_US

MAX_CURSOR: Final = 4_096
_CHECKSUM_BYTES: Final = 12

Position = TypeVar("Position")


class Cursors:
    """The cursors of one list, identified by tenant, name and filters."""

    def __init__(self, tenant_id: UUID, name: str, filters: Struct | None = None) -> None:
        self._key = msgspec.json.encode([tenant_id, name, filters])

    def write(self, position: object) -> str:
        """The cursor for a position."""
        encoded = msgspec.json.encode(position)
        return urlsafe_b64encode(self._checksum(encoded) + encoded).decode().rstrip("=")

    def read(self, cursor: str, position: type[Position]) -> Position:
        """The position of a cursor, or `InvalidCursor`."""
        if len(cursor) > MAX_CURSOR:
            raise _invalid()
        try:
            decoded = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (NotBase64, ValueError):
            raise _invalid() from None
        checksum, encoded = decoded[:_CHECKSUM_BYTES], decoded[_CHECKSUM_BYTES:]
        if checksum != self._checksum(encoded):
            raise _invalid()
        try:
            decoded_position = msgspec.json.decode(encoded, type=position)
        except msgspec.DecodeError:
            raise _invalid() from None
        if not _is_possible(decoded_position):
            raise _invalid()
        return decoded_position

    def _checksum(self, encoded: bytes) -> bytes:
        return blake2b(self._key + encoded, digest_size=_CHECKSUM_BYTES).digest()


def _is_possible(position: object) -> bool:
    """True if a list can end at this position; the checksum does not prove that we wrote it."""
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
