"""The file that the worker of a demonstration writes, and others read while it grows.

Invariant: a record has one size, so that whoever reads knows where the last whole one ends.
"""

from pathlib import Path
from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from wheelsched.core.duration import SECOND

RECORD: Final = Layout("<16sqq?")  # job, due in seconds, arrival in microseconds, first or not


class Orders(Struct, frozen=True):
    """What the worker is told on its first line."""

    secret: str
    records: str


class Arrival(NamedTuple):
    """One run that came to the worker."""

    job_id: UUID
    due_us: int
    arrived_us: int
    is_first: bool  # False: it had come before, and the worker did nothing

    @property
    def lateness_us(self) -> int:
        return self.arrived_us - self.due_us


class Records:
    """The worker's file, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.arrivals: list[Arrival] = []

    def read_on(self) -> list[Arrival]:
        """What came since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        data = data[: len(data) // RECORD.size * RECORD.size]
        self._read += len(data)
        came = [
            Arrival(UUID(bytes=job_id), due_s * SECOND, arrived_us, is_first)
            for job_id, due_s, arrived_us, is_first in RECORD.iter_unpack(data)
        ]
        self.arrivals += came
        return came
