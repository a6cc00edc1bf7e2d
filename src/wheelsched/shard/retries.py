"""The runs that wait for a further attempt, or for the one that a person asked for.

Invariant: one retry per run, the latest that was heard of. What is due by the furthest instant that
was ever asked for is given at once: the wheel has passed it and never goes back.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from wheelsched._wheel import ObjectWheel
from wheelsched.core.model import RunKey
from wheelsched.ports import Retry


class Retries:
    """Waiting runs by the time of their attempt. `on_put` is called when one came."""

    def __init__(self, now_us: int, on_put: Callable[[], None]) -> None:
        self._on_put = on_put
        self._wheel: ObjectWheel[Retry] = ObjectWheel(now_us * 1_000)
        self._reached_us = now_us
        self._waiting: dict[RunKey, tuple[Retry, int]] = {}
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
        for retry in waiting:
            self.put(retry)

    def put(self, retry: Retry) -> None:
        """Lets a run wait until then, and no longer until whenever it did before."""
        known = self._waiting.get(retry.key)
        if known is not None and known[0] == retry:
            return
        self.discard(retry.key)
        handle = self._wheel.add(retry.retry_at_us * 1_000, retry)
        self._waiting[retry.key] = (retry, handle)
        self._on_put()

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
        if (known := self._waiting.pop(key, None)) is not None:
            self._wheel.cancel(known[1])

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
