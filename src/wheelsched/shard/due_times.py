"""The due times of the horizon: ids and times in the wheel, and nothing else.

Invariant: a due time that was put in is taken out once, or replaced, or forgotten with its job.
What is here is a reminder: the database says what holds.

A wheel never goes back. Once it was asked for what is due by an instant, whatever is due by then
and comes later is given at once, however near its own time is.
"""

from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID

from wheelsched._wheel import UUIDWheel
from wheelsched.core.duration import SECOND
from wheelsched.ports import UUID_BYTES, Horizon

ROOM = 8_192  # due times taken at once


class DueTimes:
    """When each job is due next."""

    def __init__(self, now_us: int) -> None:
        self._wheel = UUIDWheel(now_us * 1_000)
        self._reached_us = now_us
        self._keys = bytearray(UUID_BYTES * ROOM)
        self._deadlines_ns = array("q", bytes(8 * ROOM))
        self._loads: list[dict[UUID, int | None]] = []  # what was moved while each was under way

    def __len__(self) -> int:
        return len(self._wheel)

    def anchor(self, now_us: int) -> None:
        """Begins again, empty, at another time: a wheel never goes back."""
        self._wheel.close()
        self._wheel = UUIDWheel(now_us * 1_000)
        self._reached_us = now_us

    def move(self, job_id: UUID, due_us: int | None) -> None:
        """Puts a job where its timer stands; None: beyond the horizon, or nowhere."""
        self._place(job_id, due_us)
        for moved in self._loads:
            moved[job_id] = due_us

    @contextmanager
    def loading(self) -> Iterator[Collection[UUID]]:
        """Whatever is moved while a load is under way is newer than what it brings: gives that."""
        moved: dict[UUID, int | None] = {}
        self._loads.append(moved)
        try:
            yield moved.keys()
        finally:
            self._loads = [other for other in self._loads if other is not moved]
            for job_id, due_us in moved.items():
                self._place(job_id, due_us)

    def put(self, job_id: UUID, due_us: int) -> None:
        """Puts one of a horizon in."""
        self._place(job_id, due_us)

    def put_many(self, horizon: Horizon, start: int, stop: int) -> None:
        """Puts a stretch of a horizon in."""
        dues_us = horizon.due_us[start:stop]
        deadlines_ns = array("q", [due_us * 1_000 for due_us in dues_us])
        keys = memoryview(horizon.job_ids)[start * UUID_BYTES : stop * UUID_BYTES]
        self._wheel.upsert_many(keys, deadlines_ns)
        for place, due_us in enumerate(dues_us, start):
            if due_us <= self._reached_us:
                self._put_back(horizon.job_id(place))

    def _put_back(self, job_id: UUID) -> None:
        """A load has brought a due time that was reached before: if its job was moved since the
        load began, it is where it was moved to. It would be claimed again, at once and in vain."""
        for moved in self._loads:
            if job_id in moved:
                self._place(job_id, moved[job_id])
                return

    def next_us(self) -> int | None:
        """When the next one is due, or a little earlier; 0 when it can be had at once."""
        next_ns = self._wheel.next_expiry()
        if next_ns is None:
            return None
        next_us = next_ns // 1_000
        return next_us if next_us > self._reached_us else 0

    def forecast(self, now_us: int, seconds: int) -> list[int]:
        """How many are due in each of the coming seconds, the past counted with the first."""
        now_ns, second_ns = now_us * 1_000, SECOND * 1_000
        return self._wheel.counts(now_ns, now_ns + seconds * second_ns, second_ns)

    def take(self, until_us: int, most: int) -> list[tuple[UUID, int]]:
        """At most so many, and `ROOM`, of those that are due by an instant, earliest first."""
        most = min(most, ROOM)
        self._reached_us = max(self._reached_us, until_us)
        keys = memoryview(self._keys)[: most * UUID_BYTES]
        deadlines_ns = memoryview(self._deadlines_ns)[:most]
        count = self._wheel.advance_into(self._reached_us * 1_000, keys, deadlines_ns)
        return [
            (
                UUID(bytes=bytes(keys[place * UUID_BYTES : (place + 1) * UUID_BYTES])),
                deadlines_ns[place] // 1_000,
            )
            for place in range(count)
        ]

    def _place(self, job_id: UUID, due_us: int | None) -> None:
        if due_us is None:
            self._wheel.discard(job_id)
        else:
            self._wheel.upsert(job_id, due_us * 1_000)
