"""The runs that wait for a further attempt, or for the one that a person asked for.

Invariant: one entry per run, the latest that was heard of.
"""

from collections.abc import Callable, Iterator

from wheelsched._wheel import ObjectWheel
from wheelsched.core.model import RunKey
from wheelsched.ports import Retry


class Retries:
    """Waiting runs by the time of their attempt. `on_put` is called when one came."""

    def __init__(self, now_us: int, on_put: Callable[[], None]) -> None:
        self._on_put = on_put
        self._wheel: ObjectWheel[Retry] = ObjectWheel(now_us * 1_000)
        self._waiting: dict[RunKey, tuple[Retry, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._waiting)

    def anchor(self, now_us: int) -> None:
        """Goes on from another time: a wheel never goes back."""
        waiting = [retry for retry, _ in self._waiting.values()]
        self._wheel.close()
        self._wheel = ObjectWheel(now_us * 1_000)
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

    def discard(self, key: RunKey) -> None:
        if (known := self._waiting.pop(key, None)) is not None:
            self._wheel.cancel(known[1])

    def next_us(self) -> int | None:
        """When the next attempt is due, or a little earlier."""
        next_ns = self._wheel.next_expiry()
        return None if next_ns is None else next_ns // 1_000

    def take(self, until_us: int, most: int) -> list[Retry]:
        """At most so many of those whose attempt is due by an instant."""
        taken = self._wheel.advance(until_us * 1_000, most)
        for retry in taken:
            del self._waiting[retry.key]
        return taken
