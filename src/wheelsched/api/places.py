"""Places: how many requests are in hand at once.

Invariant: never more than `max_in_flight` in all, and of an operation that takes large bodies never
more than its own bound. Whoever comes then is told to come again, before anything is read.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from wheelsched.api.operation import Operation
from wheelsched.errors import ApiBusy


class Places:
    """The requests in hand, by operation."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()
        self._count = 0

    @contextmanager
    def take(self, operation: Operation) -> Iterator[None]:
        """A place for one request, or `ApiBusy`."""
        name = operation.name
        if self._count >= self._most or (
            operation.max_at_once is not None and self._taken[name] >= operation.max_at_once
        ):
            raise ApiBusy
        self._count += 1
        self._taken[name] += 1
        try:
            yield
        finally:
            self._count -= 1
            self._taken[name] -= 1
