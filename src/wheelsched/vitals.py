"""Counters and gauges of a shard or an API, written by its components, read by metrics and probes.

Invariant: a write is one assignment or addition, so the hot path pays next to nothing. Labels have
a bounded set of values. Counters only grow. Instants are microseconds of the process's own clock.
One event loop writes and reads, so there are no locks.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Final, TypeVar

from msgspec import Struct, field

from wheelsched.core.histogram import Histogram
from wheelsched.core.model import Lane, RunState, SkipReason
from wheelsched.core.overdue import Lateness
from wheelsched.errors import StoreError
from wheelsched.values.duration import SECOND

Label = TypeVar("Label", bound=str)


def _zeros(labels: Iterable[Label]) -> dict[Label, int]:
    return dict.fromkeys(labels, 0)


UNKNOWN_US: Final = 30 * SECOND  # without a successful check for overdue timers
UNREADY_US: Final = 10 * SECOND  # a handover takes about a second and is normal


class Batches(Struct, kw_only=True):
    """Statements that carry many rows. Failed ones count in `errors` only."""

    durations: Histogram = field(default_factory=Histogram)
    rows: int = 0
    errors: int = 0

    def observe(self, duration_us: int, rows: int) -> None:
        self.durations.observe(duration_us)
        self.rows += rows


class QueueDepth(Struct, frozen=True):
    """The runs of queues with one name that wait for a worker."""

    runs: int
    oldest_age_us: int


class RunVitals(Struct, kw_only=True):
    """Runs in the shard's pipeline."""

    entered: dict[RunState, int] = field(default_factory=lambda: _zeros(RunState))
    # Counts due times: one skipped run may stand for many.
    skipped: dict[SkipReason, int] = field(default_factory=lambda: _zeros(SkipReason))
    retries: int = 0
    stale_outcomes: int = 0
    repeated: int = 0  # claimed again although this process had written their end
    # First attempts, from the planned send time to the write to the socket.
    lateness: Histogram = field(default_factory=Histogram)
    wheel_timers: int = 0
    armed: int = 0  # not yet due
    orphans: int = 0  # armed by other shards, not yet adopted
    queued: dict[Lane, int] = field(default_factory=lambda: _zeros(Lane))  # due, not yet sent
    in_flight: int = 0  # sent, awaiting a response
    handed_out: int = 0  # to workers that pull
    queues: dict[str, QueueDepth] = field(default_factory=dict)  # the longest, by name


class OwnershipVitals(Struct, kw_only=True):
    """The shard's lease and partitions."""

    trusted_until_us: int = 0  # 0: never trusted
    partitions: int = 0
    unready_partitions: int = 0  # those whose unfinished runs are not loaded yet
    unready_us: int = 0  # how long the longest of them has made no progress
    takeovers: int = 0  # dead shards that this one took over
    handovers: int = 0  # partitions that this shard handed to others
    went_back: int = 0  # how often it noticed that the database had forgotten commits


class ClockVitals(Struct, kw_only=True):
    """The shard's estimate of the database clock."""

    offset_us: int = 0
    error_us: int = 0
    steps: int = 0


class HintVitals(Struct, kw_only=True):
    """Change notifications from the database."""

    received: int = 0
    confirmed_at_us: int | None = None  # every hint sent before this instant has arrived
    reconnects: int = 0
    reloads: int = 0  # single jobs reloaded because of a hint


class PlanVitals(Struct, kw_only=True):
    """Jobs that applications scheduled in SQL."""

    accepted: int = 0
    refused: int = 0


class DispatchVitals(Struct, kw_only=True):
    """Requests to workers, and circuit breakers."""

    requests: int = 0
    sent_bytes: int = 0
    # Breakers that are not closed, by kind and state.
    breakers: dict[tuple[str, str], int] = field(
        default_factory=lambda: dict.fromkeys(
            product(("origin", "job", "target"), ("open", "half_open")), 0
        )
    )
    # By the new state.
    breaker_transitions: dict[str, int] = field(
        default_factory=lambda: _zeros(("closed", "open", "half_open"))
    )


class StoreVitals(Struct, kw_only=True):
    """Database statements by stage, and their errors."""

    loads: Batches = field(default_factory=Batches)
    arms: Batches = field(default_factory=Batches)
    settles: Batches = field(default_factory=Batches)
    errors: dict[str, int] = field(default_factory=dict)  # by class name, a few dozen at most
    is_schema_current: bool = False
    refreshed_at_us: int | None = None  # when the last load of all partitions completed
    # The oldest timers and retries in the shard's partitions that are due and not armed.
    unarmed: Lateness = Lateness()
    unarmed_read_at_us: int | None = None  # None: not read yet

    def count_error(self, error: StoreError) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1


class Vitals(Struct, kw_only=True):
    """All vitals of one shard."""

    runs: RunVitals = field(default_factory=RunVitals)
    ownership: OwnershipVitals = field(default_factory=OwnershipVitals)
    clock: ClockVitals = field(default_factory=ClockVitals)
    hints: HintVitals = field(default_factory=HintVitals)
    plans: PlanVitals = field(default_factory=PlanVitals)
    dispatch: DispatchVitals = field(default_factory=DispatchVitals)
    store: StoreVitals = field(default_factory=StoreVitals)

    def missing_to_begin(self, now_us: int) -> list[str]:
        """The conditions that the shard must still meet before it can start working."""
        conditions = {
            "schema": self.store.is_schema_current,
            "lease": now_us < self.ownership.trusted_until_us,
            "load": self.store.refreshed_at_us is not None,
        }
        return [name for name, holds in conditions.items() if not holds]

    def missing(self, now_us: int) -> list[str]:
        """The unmet readiness conditions; the shard is ready if there are none."""
        conditions = {
            "sweep": self.ownership.unready_us < UNREADY_US,
            "arm": not self.store.unarmed.is_alarming and self._is_arming_known(now_us),
        }
        unmet = [name for name, holds in conditions.items() if not holds]
        return self.missing_to_begin(now_us) + unmet

    def _is_arming_known(self, now_us: int) -> bool:
        """True if the check for overdue timers succeeded recently, or has not run yet."""
        read_at_us = self.store.unarmed_read_at_us
        return read_at_us is None or now_us - read_at_us < UNKNOWN_US


class ApiVitals(Struct, kw_only=True):
    """Requests of an API process, by operation id, probe name or `unknown`."""

    answered: dict[tuple[str, int], int] = field(default_factory=dict)  # by operation and status
    durations: dict[str, Histogram] = field(default_factory=dict)  # by operation
    in_flight: int = 0
    registered: int = 0  # jobs, including those registered in bulk
    waiting: int = 0  # claims that wait for runs, and streams; they are not in flight
    linked_shards: int = 0  # whose runs the workers of this process can get

    @contextmanager
    def waiting_request(self) -> Iterator[None]:
        """Counts a request as waiting for the duration of the block."""
        self.in_flight -= 1
        self.waiting += 1
        try:
            yield
        finally:
            self.in_flight += 1
            self.waiting -= 1

    def observe(self, operation: str, status: int, duration_us: int) -> None:
        """Counts a response."""
        self.answered[operation, status] = self.answered.get((operation, status), 0) + 1
        durations = self.durations.get(operation)
        if durations is None:
            durations = self.durations[operation] = Histogram()
        durations.observe(duration_us)
