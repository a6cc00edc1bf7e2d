"""Remembers which shard handed out which attempt, and to which worker.

Invariant: the memory is bounded. An attempt that is forgotten is not lost: its outcome is written
to the database without its shard.
"""

from typing import Final, Generic, TypeVar

from wheelsched.ports.work import Attempted

MAX_REMEMBERED: Final = 500_000

Holder = TypeVar("Holder")


class InHand(Generic[Holder]):
    """Attempts and their holders, in two generations. Those of the older one are forgotten with
    each second `age`, or when there are too many."""

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most_young = max(1, most // 2)
        self._young: dict[Attempted, Holder] = {}
        self._old: dict[Attempted, Holder] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, attempt: Attempted, holder: Holder) -> None:
        if len(self._young) >= self._most_young:
            self.age()
        self._young[attempt] = holder

    def find(self, attempt: Attempted) -> Holder | None:
        return self._young.get(attempt) or self._old.get(attempt)

    def keep(self, attempt: Attempted) -> None:
        """The worker has sent something."""
        holder = self._old.pop(attempt, None)
        if holder is not None:
            self.add(attempt, holder)

    def pop(self, attempt: Attempted) -> Holder | None:
        """Forgets an attempt. It is in one generation, or was handed out twice."""
        young = self._young.pop(attempt, None)
        old = self._old.pop(attempt, None) if self._old else None
        return young if young is not None else old

    def age(self) -> None:
        """Forgets the attempts that were added before the last call."""
        self._old, self._young = self._young, {}
