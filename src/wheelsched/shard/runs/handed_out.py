"""The runs that were handed to workers that pull and have no outcome yet.

Invariant: a run is here from its hand-out until its outcome is known, it is given back or it is
withdrawn. Its delivery lease is over 5 s after the hand-out, by the machine's clock. Runs of one
hand-out share one entry of the leases, which are in the order of their ends.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from wheelsched.core.model import RunKey
from wheelsched.ports.work import DELIVERY_LEASE_US, Attempted
from wheelsched.shard.runs.armed_run import ArmedRun


class HandedOutRuns:
    """The runs by key, with the end of their delivery lease."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, tuple[ArmedRun, int]] = {}
        self._leases: deque[tuple[int, Sequence[ArmedRun]]] = deque()
        self._adopted: dict[RunKey, None] = {}  # in order, so that a simulation repeats

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, runs: Sequence[ArmedRun], now_us: int) -> None:
        """Adds runs that are handed out now."""
        until_us = now_us + DELIVERY_LEASE_US
        self._runs.update([(run.key, (run, until_us)) for run in runs])
        self._leases.append((until_us, runs))

    def adopt(self, run: ArmedRun, now_us: int) -> None:
        """Adds a run that its previous owner may have handed out, or not."""
        self.add([run], now_us)
        self._adopted[run.key] = None

    def is_adopted(self, run: ArmedRun) -> bool:
        return run.key in self._adopted

    def take_adopted(self, is_gone: Callable[[RunKey], bool]) -> list[ArmedRun]:
        """Removes adopted runs."""
        keys = [key for key in self._adopted if is_gone(key)]
        return self.discard([self._runs[key][0] for key in keys])

    def find(self, key: RunKey) -> ArmedRun | None:
        known = self._runs.get(key)
        return None if known is None else known[0]

    def lease_end_us(self, run: ArmedRun) -> int | None:
        """When the delivery lease of a run ends that is here; it identifies the hand-out."""
        known = self._runs.get(run.key)
        return known[1] if known is not None and known[0] is run else None

    def take(self, attempt: Attempted) -> ArmedRun | None:
        """Removes the run of this attempt, if it is here."""
        known = self._runs.pop(attempt.key, None)
        if known is None:
            return None
        if known[0].token != attempt.token:
            self._runs[attempt.key] = known
            return None
        if self._adopted:
            self._adopted.pop(attempt.key, None)
        return known[0]

    def discard(self, runs: Iterable[ArmedRun]) -> list[ArmedRun]:
        """Removes runs, and returns those that were here."""
        found = [run for run in runs if self.find(run.key) is run]
        for run in found:
            del self._runs[run.key]
            self._adopted.pop(run.key, None)
        return found

    def expired(self, now_us: int) -> list[ArmedRun]:
        """The runs whose delivery lease has ended since the last call. They stay here."""
        found: list[ArmedRun] = []
        while self._leases and self._leases[0][0] <= now_us:
            _, runs = self._leases.popleft()
            for run in runs:
                known = self._runs.get(run.key)
                if known is not None and known[0] is run and known[1] <= now_us:
                    found.append(run)
        return found
