"""The runs that wait for a further attempt, or for the one that a person asked for.

Invariant: one retry per run, the latest that was heard of. What is due by the furthest instant that
was ever asked for is given at once: the wheel has passed it and never goes back.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from uuid import UUID

from wheelsched._wheel import ObjectWheel
from wheelsched.core.model import RunKey
from wheelsched.ports import Retry


class Retries:
    """Waiting runs by the time of their attempt. `on_put` is called when one came."""

    def __init__(self, now_us: int, on_put: Callable[[], None]) -> None:
        self._on_put = on_put
        self._wheel: ObjectWheel[Retry] = ObjectWheel(now_us * 1_000)
        self._reached_us = now_us
        self._waiting: dict[RunKey, tuple[Retry, int | None]] = {}  # None: held back
        self._held: dict[UUID, dict[RunKey, Retry]] = {}
        self._loads: list[set[RunKey]] = []  # what was taken while each was under way

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._waiting)

    def anchor(self, now_us: int) -> None:
        """Goes on from another time: a wheel never goes back."""
        waiting = [retry for retry, _ in self._waiting.values()]
        self._wheel.close()
        self._wheel = ObjectWheel(now_us * 1_000)
        self._reached_us = now_us
        self._waiting.clear()
        self._held.clear()
        for retry in waiting:
            self.put(retry)

    def put(self, retry: Retry) -> None:
        """Lets a run wait until then, and no longer until whenever it did before."""
        known = self._waiting.get(retry.key)
        if known is not None and known[0] == retry:
            return
        self.discard(retry.key)
        self._add(retry)
        self._on_put()

    def hold_back(self, retry: Retry) -> None:
        """Keeps a retry that was taken until its job has room: see `release`."""
        self._waiting[retry.key] = (retry, None)
        self._held.setdefault(retry.key.job_id, {})[retry.key] = retry

    @property
    def held_jobs(self) -> Collection[UUID]:
        """The jobs of which retries are held back."""
        return self._held.keys()

    def release(self, job_id: UUID, most: int) -> None:
        """Lets go of at most so many retries of a job, the longest held first."""
        for retry in tuple(islice(self._held[job_id].values(), most)):
            self.discard(retry.key)
            self._add(retry)

    @contextmanager
    def loading(
        self, being_claimed: Sequence[Collection[RunKey]]
    ) -> Iterator[Callable[[Iterable[Retry]], list[Retry]]]:
        """While a load is under way. Gives a filter for what it brings.

        A run that is being claimed when it begins, or is taken until it ends, may be read as it was
        before that. To put it in again would have it claimed once more, in vain.
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
        """When the next attempt is due, or a little earlier; 0 when it can be had at once."""
        next_ns = self._wheel.next_expiry()
        if next_ns is None:
            return None
        next_us = next_ns // 1_000
        return next_us if next_us > self._reached_us else 0

    def take(self, until_us: int, most: int) -> list[Retry]:
        """At most so many of those whose attempt is due by an instant."""
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
