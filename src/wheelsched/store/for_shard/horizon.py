"""Decodes a horizon of timers from binary COPY.

Invariant: no Python object is created per timer. A row takes 42 bytes on the wire and 28 in memory.
"""

import sys
from array import array

from wheelsched.ports import UUID_BYTES, Horizon, Retry

HEADER_BYTES = 19
# Each row: the number of columns (2), then length (4) and value of job id, due time and version.
ROW_BYTES = 2 + (4 + UUID_BYTES) + (4 + 8) + (4 + 4)
JOB_ID_OFFSET = 6
DUE_OFFSET = JOB_ID_OFFSET + UUID_BYTES + 4
VERSION_OFFSET = DUE_OFFSET + 8 + 4
BLOCK_BYTES = 4_096 * ROW_BYTES  # small enough to stay in the processor's cache


class HorizonDecoder:
    """Decodes the rows of `load_timers` into columns as they arrive."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._is_past_header = False
        self._job_ids = bytearray()
        self._due = bytearray()
        self._versions = bytearray()

    async def feed(self, data: bytes) -> None:
        """Takes the next chunk of the copy."""
        self._pending += data
        if not self._is_past_header and len(self._pending) >= HEADER_BYTES:
            del self._pending[:HEADER_BYTES]
            self._is_past_header = True
        if len(self._pending) >= BLOCK_BYTES:
            self._take_rows()

    def finish(self, retries: tuple[Retry, ...]) -> Horizon:
        """The horizon, after the last chunk. The bytes that remain are the trailer."""
        self._take_rows()
        return Horizon(
            job_ids=bytes(self._job_ids),
            due_us=_integers("q", self._due),
            versions=_integers("i", self._versions),
            retries=retries,
        )

    def _take_rows(self) -> None:
        end = len(self._pending) // ROW_BYTES * ROW_BYTES
        for start in range(0, end, BLOCK_BYTES):
            rows = self._pending[start : min(start + BLOCK_BYTES, end)]
            self._job_ids += _column(rows, JOB_ID_OFFSET, UUID_BYTES)
            self._due += _column(rows, DUE_OFFSET, 8)
            self._versions += _column(rows, VERSION_OFFSET, 4)
        del self._pending[:end]


def _column(rows: bytearray, offset: int, width: int) -> bytearray:
    """One column of all rows, in one step per byte of the column instead of one per row."""
    column = bytearray(len(rows) // ROW_BYTES * width)
    for position in range(width):
        column[position::width] = rows[offset + position :: ROW_BYTES]
    return column


def _integers(kind: str, column: bytearray) -> "array[int]":
    """Integers in network byte order."""
    numbers = array(kind, bytes(column))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
