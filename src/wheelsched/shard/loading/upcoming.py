"""The next due time of each job, and the runs that wait for a further attempt.

Invariant: an entry here is only a reminder; the database decides. A due time is taken once,
replaced, or discarded with its job. A run has one retry, the latest known.

A wheel never goes back. Once it has been advanced to an instant, an entry that is added for an
earlier time is returned at once.
"""

import asyncio
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from uuid import UUID

from wheelsched._wheel import ObjectWheel, UUIDWheel
from wheelsched.core.model import RunKey
from wheelsched.ports import UUID_BYTES, Horizon, Retry
from wheelsched.values.duration import SECOND

Reminder = int | Retry  # a due time of a job, or a further attempt of one of its runs

ROOM = 8_192  # due times taken at once


class DueTimes:
    """The next due time of each job."""

    def __init__(self, now_us: int) -> None:
        self._wheel = UUIDWheel(now_us * 1_000)
        self._reached_us = now_us
        self._keys = bytearray(UUID_BYTES * ROOM)
        self._deadlines_ns = array("q", bytes(8 * ROOM))
        self._loads: list[dict[UUID, int | None]] = []  # the moves during each load in progress

    def __len__(self) -> int:
        return len(self._wheel)

    def anchor(self, now_us: int) -> None:
        """Restarts with an empty wheel at another time: a wheel never goes back."""
        self._wheel.close()
        self._wheel = UUIDWheel(now_us * 1_000)
        self._reached_us = now_us

    def move(self, job_id: UUID, due_us: int | None) -> None:
        """Moves a job to a due time; None if that is beyond the horizon, or there is none."""
        self._place(job_id, due_us)
        for moved in self._loads:
            moved[job_id] = due_us

    @contextmanager
    def loading(self) -> Iterator[Collection[UUID]]:
        """Yields the jobs that are moved during a load: a move is newer than the load's result."""
        moved: dict[UUID, int | None] = {}
        self._loads.append(moved)
        try:
            yield moved.keys()
        finally:
            self._loads = [other for other in self._loads if other is not moved]
            for job_id, due_us in moved.items():
                self._place(job_id, due_us)

    def put(self, job_id: UUID, due_us: int) -> None:
        """Adds a due time that was loaded."""
        self._place(job_id, due_us)

    def put_many(self, horizon: Horizon, start: int, stop: int) -> None:
        """Adds a slice of the due times that were loaded."""
        dues_us = horizon.due_us[start:stop]
        deadlines_ns = array("q", [due_us * 1_000 for due_us in dues_us])
        keys = memoryview(horizon.job_ids)[start * UUID_BYTES : stop * UUID_BYTES]
        self._wheel.upsert_many(keys, deadlines_ns)
        for place, due_us in enumerate(dues_us, start):
            if due_us <= self._reached_us:
                self._put_back(horizon.job_id(place))

    def _put_back(self, job_id: UUID) -> None:
        """Restores the due time of a job that was moved since the load began. The loaded one is in
        the past, and would be claimed again at once, without success."""
        for moved in self._loads:
            if job_id in moved:
                self._place(job_id, moved[job_id])
                return

    def next_us(self) -> int | None:
        """When the next job is due, or a little earlier; 0 if it can be taken at once."""
        return _next_us(self._wheel.next_expiry(), self._reached_us)

    def forecast(self, now_us: int, seconds: int) -> list[int]:
        """The number due in each of the coming seconds; overdue ones count in the first."""
        now_ns, second_ns = now_us * 1_000, SECOND * 1_000
        return self._wheel.counts(now_ns, now_ns + seconds * second_ns, second_ns)

    def take(self, until_us: int, most: int) -> list[tuple[UUID, int]]:
        """Takes up to `most` (and `ROOM`) jobs that are due by an instant, earliest first."""
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


class Retries:
    """Runs that wait for an attempt, by its time. Sets `changed` when one is added."""

    def __init__(self, now_us: int, changed: asyncio.Event) -> None:
        self._changed = changed
        self._wheel: ObjectWheel[Retry] = ObjectWheel(now_us * 1_000)
        self._reached_us = now_us
        self._waiting: dict[RunKey, tuple[Retry, int | None]] = {}  # handle; None if held back
        self._held: dict[UUID, dict[RunKey, Retry]] = {}
        self._loads: list[set[RunKey]] = []  # the runs taken during each load in progress

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._waiting)

    def anchor(self, now_us: int) -> None:
        """Restarts the wheel at another time: a wheel never goes back."""
        waiting = [retry for retry, _ in self._waiting.values()]
        self._wheel.close()
        self._wheel = ObjectWheel(now_us * 1_000)
        self._reached_us = now_us
        self._waiting.clear()
        self._held.clear()
        for retry in waiting:
            self.put(retry)

    def put(self, retry: Retry) -> None:
        """Adds a retry, in place of an earlier one of the same run."""
        known = self._waiting.get(retry.key)
        if known is not None and known[0] == retry:
            return
        self.discard(retry.key)
        self._add(retry)
        self._changed.set()

    def hold_back(self, retry: Retry) -> None:
        """Holds back a retry that was taken until its job has room: see `release`."""
        self._waiting[retry.key] = (retry, None)
        self._held.setdefault(retry.key.job_id, {})[retry.key] = retry

    @property
    def held_jobs(self) -> Collection[UUID]:
        """The jobs with retries that are held back."""
        return self._held.keys()

    def release(self, job_id: UUID, most: int) -> None:
        """Releases up to `most` retries of a job, the longest held first."""
        for retry in tuple(islice(self._held[job_id].values(), most)):
            self.discard(retry.key)
            self._add(retry)

    @contextmanager
    def loading(
        self, being_claimed: Sequence[Collection[RunKey]]
    ) -> Iterator[Callable[[Iterable[Retry]], list[Retry]]]:
        """Yields a filter for the retries that a load returns.

        A run that is being claimed when the load begins, or is taken before it ends, may be read as
        it was before. If it were put again, it would be claimed again without success.
        """
        taken: set[RunKey] = set()
        self._loads.append(taken)
        stale = (taken, *being_claimed)

        def still_waiting(loaded: Iterable[Retry]) -> list[Retry]:
            return [retry for retry in loaded if not any(retry.key in keys for keys in stale)]

        try:
            yield still_waiting
        finally:
            self._loads = [other for other in self._loads if other is not taken]

    def discard(self, key: RunKey) -> None:
        known = self._waiting.pop(key, None)
        if known is None:
            return
        if known[1] is not None:
            self._wheel.cancel(known[1])
            return
        of_job = self._held[key.job_id]
        del of_job[key]
        if not of_job:
            del self._held[key.job_id]

    def next_us(self) -> int | None:
        """When the next attempt is due, or a little earlier; 0 if it can be taken at once."""
        return _next_us(self._wheel.next_expiry(), self._reached_us)

    def take(self, until_us: int, most: int) -> list[Retry]:
        """Takes up to `most` retries that are due by an instant."""
        self._reached_us = max(self._reached_us, until_us)
        taken = self._wheel.advance(self._reached_us * 1_000, most)
        for retry in taken:
            del self._waiting[retry.key]
        for load in self._loads:
            load.update(retry.key for retry in taken)
        return taken

    def _add(self, retry: Retry) -> None:
        handle = self._wheel.add(retry.retry_at_us * 1_000, retry)
        self._waiting[retry.key] = (retry, handle)


class Upcoming:
    """The due times and retries that *load* puts and *arm* takes."""

    def __init__(self, now_us: int) -> None:
        self.changed = asyncio.Event()  # wakes *arm*: there may be something more urgent
        self.due_times = DueTimes(now_us)
        self.retries = Retries(now_us, self.changed)

    def remind(self, job_id: UUID, reminder: Reminder) -> None:
        """Puts back a due time or a retry that could not be armed before."""
        if isinstance(reminder, Retry):
            self.retries.put(reminder)
        else:
            self.due_times.move(job_id, reminder)
            self.changed.set()

    def anchor(self, now_us: int) -> None:
        """Restarts the wheels after the clock was stepped."""
        self.due_times.anchor(now_us)
        self.retries.anchor(now_us)


def _next_us(next_ns: int | None, reached_us: int) -> int | None:
    """The next expiry of a wheel in microseconds; 0 if the wheel was advanced past it."""
    if next_ns is None:
        return None
    next_us = next_ns // 1_000
    return next_us if next_us > reached_us else 0
