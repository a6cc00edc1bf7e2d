"""What a worker has written down, while it is still writing and afterwards.

Invariant: only whole lines count. The end of a log may be torn, if its worker was killed.

A line is an arrival, an object; or an answer, `[first, last, answer, answered_us]`, to the arrivals
of one request by their numbers, which are those of their lines among the arrivals, from 0 on.
"""

from pathlib import Path
from sys import intern
from typing import Final

import msgspec
from msgspec.structs import force_setattr
from tests.checker.records import Answer, Arrival

ARRIVAL: Final = msgspec.json.Decoder(Arrival)
ANSWER: Final = msgspec.json.Decoder(tuple[int, int, Answer, int])
ANY: Final = b'"key"'  # in each arrival, once
SHARED: Final = ("job", "tenant", "signer", "trigger", "url")  # by many: a million are kept once


class Records:
    """The log of one worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[bytes, tuple[int, int]] = {}  # up to where, and how many there were

    def count(self, wanted: bytes = ANY) -> int:
        """How often something has been written. What was read once is not read again."""
        place, count = self._seen.get(wanted, (0, 0))
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(place)
                whole, end, _ = file.read().rpartition(b"\n")
            place, count = place + len(whole) + len(end), count + whole.count(wanted)
            self._seen[wanted] = place, count
        return count

    def read(self) -> list[Arrival]:
        """Everything that arrived, with what was answered."""
        arrivals: list[Arrival] = []
        if not self._path.exists():
            return arrivals
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if line.startswith(b"["):
                    _answer(arrivals, *ANSWER.decode(line))
                else:
                    arrivals.append(_sharing(ARRIVAL.decode(line)))
        return arrivals


def _answer(arrivals: list[Arrival], first: int, last: int, answer: Answer, at_us: int) -> None:
    for arrival in arrivals[first : last + 1]:  # as yet known to nobody else
        force_setattr(arrival, "answer", answer)
        force_setattr(arrival, "answered_us", at_us)


def _sharing(arrival: Arrival) -> Arrival:
    for name in SHARED:
        force_setattr(arrival, name, intern(getattr(arrival, name)))
    return arrival
