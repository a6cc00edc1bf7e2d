"""The file of arrivals that the demo worker appends to, and the runner reads while it grows.

Invariant: records have a fixed size, so a reader can tell where the last complete one ends.
"""

from pathlib import Path
from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from wheelsched.values.duration import SECOND

RECORD: Final = Layout("<16sqq?")  # job id, due in s, arrival in µs, is first


class WorkerSetup(Struct, frozen=True):
    """What the worker reads from its first line of input."""

    secret: str
    records: str


class Arrival(NamedTuple):
    """One run received by the worker."""

    job_id: UUID
    due_us: int
    arrived_us: int
    is_first: bool  # False: a duplicate that the worker ignored

    @property
    def lateness_us(self) -> int:
        return self.arrived_us - self.due_us


class Records:
    """Reads the worker's file as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.arrivals: list[Arrival] = []

    def read_new(self) -> list[Arrival]:
        """The arrivals since the last call."""
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
