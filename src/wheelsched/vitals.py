"""The vitals of a shard or an API: plain counters and gauges that the parts write, others read.

Invariant: writing is an assignment or an addition and nothing else, so that the hot path pays next
to nothing; what is counted by a label has a bounded set of them. Counters only grow. Instants are
of the process's own clock, in microseconds: whoever reads them has that clock too. One loop writes
and reads; there are no locks.
"""

from collections.abc import Iterable
from itertools import product
from typing import Final, TypeVar

from msgspec import Struct, field

from wheelsched.core.duration import SECOND
from wheelsched.core.histogram import Histogram
from wheelsched.core.model import Lane, RunState, SkipReason
from wheelsched.core.overdue import Lateness
from wheelsched.errors import StoreError

Label = TypeVar("Label", bound=str)


def _zeros(labels: Iterable[Label]) -> dict[Label, int]:
    return dict.fromkeys(labels, 0)


UNKNOWN_US: Final = 30 * SECOND  # without a look at what is due and not armed
UNREADY_US: Final = 10 * SECOND  # a hand-over takes a second, and is nothing to tell of


class Batches(Struct, kw_only=True):
    """Statements that carry many rows. Those that failed count as errors alone."""

    durations: Histogram = field(default_factory=Histogram)
    rows: int = 0
    errors: int = 0

    def observe(self, duration_us: int, rows: int) -> None:
        self.durations.observe(duration_us)
        self.rows += rows


class RunVitals(Struct, kw_only=True):
    """Runs on their way through the shard."""

    entered: dict[RunState, int] = field(default_factory=lambda: _zeros(RunState))
    # Due times, by reason: one skipped run may stand for many.
    skipped: dict[SkipReason, int] = field(default_factory=lambda: _zeros(SkipReason))
    retries: int = 0  # attempts that were put off to a later time
    stale_outcomes: int = 0
    # Of first attempts, from the time they were to be sent to the write to the socket.
    lateness: Histogram = field(default_factory=Histogram)
    wheel_timers: int = 0
    armed: int = 0  # and waiting for their time
    left_behind: int = 0  # by others, and still to be taken up
    queued: dict[Lane, int] = field(default_factory=lambda: _zeros(Lane))  # due, not yet sent
    in_flight: int = 0  # sent and not answered


class TenureVitals(Struct, kw_only=True):
    """What the shard holds."""

    trusted_until_us: int = 0  # 0: not at all
    partitions: int = 0
    unready_partitions: int = 0  # of those, the ones whose unfinished runs are not known yet
    unready_us: int = 0  # for how long nothing was heard of the one that waits longest
    takeovers: int = 0  # of dead shards, by this one
    handovers: int = 0  # of partitions, to others


class ClockVitals(Struct, kw_only=True):
    """The database's clock as the shard knows it."""

    offset_us: int = 0
    error_us: int = 0
    steps: int = 0


class HintVitals(Struct, kw_only=True):
    """Changes that the shard is told of."""

    received: int = 0
    confirmed_at_us: int | None = None  # every hint from before this instant has arrived
    reconnects: int = 0
    reloads: int = 0  # of single jobs, because of a hint


class PlanVitals(Struct, kw_only=True):
    """Jobs that applications wrote in transactions of their own."""

    accepted: int = 0
    refused: int = 0


class DispatchVitals(Struct, kw_only=True):
    """Requests to workers, and the breakers between."""

    requests: int = 0
    sent_bytes: int = 0
    # Those that are not closed, by kind and state.
    breakers: dict[tuple[str, str], int] = field(
        default_factory=lambda: dict.fromkeys(
            product(("origin", "job", "target"), ("open", "half_open")), 0
        )
    )
    # By the state that a breaker went to.
    breaker_transitions: dict[str, int] = field(
        default_factory=lambda: _zeros(("closed", "open", "half_open"))
    )


class StoreVitals(Struct, kw_only=True):
    """Statements, by stage, and how they failed."""

    loads: Batches = field(default_factory=Batches)
    arms: Batches = field(default_factory=Batches)
    settles: Batches = field(default_factory=Batches)
    errors: dict[str, int] = field(default_factory=dict)  # by name: there are a few dozen
    is_schema_current: bool = False
    refreshed_at_us: int | None = None  # when a load of all partitions last came back
    # How late what waits longest to be armed is, in the partitions of the shard.
    unarmed: Lateness = Lateness()
    unarmed_read_at_us: int | None = None  # None: not read since the start

    def count_error(self, error: StoreError) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1


class Vitals(Struct, kw_only=True):
    """Everything that is counted about one shard."""

    runs: RunVitals = field(default_factory=RunVitals)
    tenure: TenureVitals = field(default_factory=TenureVitals)
    clock: ClockVitals = field(default_factory=ClockVitals)
    hints: HintVitals = field(default_factory=HintVitals)
    plans: PlanVitals = field(default_factory=PlanVitals)
    dispatch: DispatchVitals = field(default_factory=DispatchVitals)
    store: StoreVitals = field(default_factory=StoreVitals)

    def missing_to_begin(self, now_us: int) -> list[str]:
        """What the shard still lacks to begin its work."""
        conditions = {
            "schema": self.store.is_schema_current,
            "lease": now_us < self.tenure.trusted_until_us,
            "load": self.store.refreshed_at_us is not None,
        }
        return [name for name, holds in conditions.items() if not holds]

    def missing(self, now_us: int) -> list[str]:
        """What the shard lacks to do its work on time: nothing, and it is ready."""
        conditions = {
            "sweep": self.tenure.unready_us < UNREADY_US,
            "arm": not self.store.unarmed.is_alarming and self._is_arming_known(now_us),
        }
        unmet = [name for name, holds in conditions.items() if not holds]
        return self.missing_to_begin(now_us) + unmet

    def _is_arming_known(self, now_us: int) -> bool:
        """Whether the database was asked lately what is due and not armed, or never yet."""
        read_at_us = self.store.unarmed_read_at_us
        return read_at_us is None or now_us - read_at_us < UNKNOWN_US


class ApiVitals(Struct, kw_only=True):
    """Requests of an API process. Operations are those of its table, and a few names beside."""

    answered: dict[tuple[str, int], int] = field(default_factory=dict)  # by operation and status
    durations: dict[str, Histogram] = field(default_factory=dict)  # by operation
    in_flight: int = 0
    registered: int = 0  # jobs, one by one and in bulk

    def observe(self, operation: str, status: int, duration_us: int) -> None:
        """Counts an answer."""
        self.answered[operation, status] = self.answered.get((operation, status), 0) + 1
        durations = self.durations.get(operation)
        if durations is None:
            durations = self.durations[operation] = Histogram()
        durations.observe(duration_us)
