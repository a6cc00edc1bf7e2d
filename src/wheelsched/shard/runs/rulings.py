"""Runs whose end was decided without an attempt, until it is written; and claims that are open.

Invariant: a run with a ruling is unfinished in the database until settle has written the ruling.
Until then it is neither claimed nor retried here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from wheelsched.core.model import RunKey
from wheelsched.core.partition import partition_of


class OpenClaim(NamedTuple):
    """Unfinished runs that are being claimed, and those that got a ruling meanwhile."""

    keys: set[RunKey]
    ruled: set[RunKey]


class Rulings:
    """The runs with a ruling that is still to be written."""

    def __init__(self) -> None:
        self._counts = Counter[RunKey]()  # a run may be ruled under two tokens
        self._by_partition = Counter[int]()  # the number of those runs
        self._postponed: set[RunKey] = set()  # the runs with a retry that waits for the ruling
        self.claims: list[OpenClaim] = []

    def __contains__(self, key: RunKey) -> bool:
        return key in self._counts

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._counts)

    def add(self, key: RunKey) -> None:
        """Records that the end of a run was decided, which the database does not know yet."""
        if key not in self._counts:
            self._by_partition[partition_of(key.job_id)] += 1
        self._counts[key] += 1
        for claim in self.claims:
            if key in claim.keys:
                claim.ruled.add(key)

    def written(self, key: RunKey) -> bool:
        """Removes a ruling that was written. True if a retry of the run was postponed and no other
        ruling of it is left."""
        self._counts[key] -= 1
        if self._counts[key]:
            return False
        del self._counts[key]
        self._by_partition[partition_of(key.job_id)] -= 1
        has_retry = key in self._postponed
        self._postponed.discard(key)
        return has_retry

    def any_in(self, partitions: Collection[int]) -> bool:
        """Whether a ruling in one of the partitions is still to be written."""
        return any(self._by_partition[partition] for partition in partitions)

    def postpone_retry(self, key: RunKey) -> None:
        """Delays a retry until the ruling is written: the retry may be void by then, or may have
        been requested since."""
        self._postponed.add(key)

    @contextmanager
    def claiming(self, keys: Iterable[RunKey]) -> Iterator[set[RunKey]]:
        """Keeps a claim open while runs are claimed under new tokens; yields those ruled meanwhile.

        A claim that got no answer may have committed. Then a ruling under the previous token is
        stale: the run must not be sent, and its later attempt is this shard's own.
        """
        claim = OpenClaim(set(keys), set())
        self.claims.append(claim)
        try:
            yield claim.ruled
        finally:
            self.claims = [other for other in self.claims if other is not claim]
