"""Two clocks and the windows in which something was broken."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import sub

from tests.checker.records import ClockError, Fault, History

SECOND_US = 1_000_000
ERROR_HOLDS_US = 3 * SECOND_US  # around the instant at which a shard was asked
BELIEVED_US = 3_500_000  # half of a lease: whoever waits longer for an answer owns nothing

CALM_US = 100_000  # on one machine, and without a fault, no answer takes as long as twice that
SAMPLES_US = 60 * SECOND_US  # how long a shard keeps what it has measured
SLEWED_US = 100_000  # a step that is no larger is made good by and by: one part in 200
SLEWING_US = 25 * SECOND_US  # how long that takes, from the step on


class Times:
    """The database's clock against the reference."""

    def __init__(self, history: History) -> None:
        self.steps_us = [offset.from_us for offset in history.offsets]
        self._offsets_us = [offset.offset_us for offset in history.offsets]
        faults = sorted((*history.faults, *_down(history)), key=lambda fault: fault.from_us)
        self._faults = faults
        self._faults_from_us = [fault.from_us for fault in faults]
        self._faults_until_us = list(accumulate((fault.until_us for fault in faults), max))
        self._edges_us, self._errors_us = _said(history.clock_errors)

    def database_us(self, at_us: int) -> int:
        """The database's time at an instant of the reference."""
        place = bisect_right(self.steps_us, at_us)
        return at_us + (self._offsets_us[place - 1] if place else 0)

    def instant_us(self, database_us: int, by_us: int | None = None) -> int:
        """The last instant, not after `by_us`, at which the database's clock came to a time."""
        instants_us = self.instants_us(database_us)
        known_us = [at_us for at_us in instants_us if by_us is None or at_us <= by_us]
        return known_us[-1] if known_us else instants_us[0]

    def instant_after_us(self, database_us: int, heard_us: int) -> int:
        """The first instant, not long before `heard_us`, at which it came to a time; or the last.

        Who writes the time of what was heard of then may be off by as much as a clock in calm.
        """
        instants_us = self.instants_us(database_us)
        after_us = (at_us for at_us in instants_us if at_us >= heard_us - CALM_US)
        return next(after_us, instants_us[-1])

    def instants_us(self, database_us: int) -> list[int]:
        """All instants at which the database's clock came to a time, or jumped over it."""
        found = []
        starts = [-(1 << 62), *self.steps_us, 1 << 62]
        offsets = [0, *self._offsets_us]
        for place, offset_us in enumerate(offsets):
            start_us, end_us = starts[place : place + 2]
            instant_us = database_us - offset_us
            if place and instant_us < start_us <= database_us - offsets[place - 1]:
                instant_us = start_us  # jumped over
            if start_us <= instant_us < end_us:
                found.append(instant_us)
        return found or [database_us - offsets[-1]]

    def error_us(self, at_us: int) -> int:
        """The most that a shard said about then that its clock might be off, as far as believed."""
        place = bisect_right(self._edges_us, at_us)
        said_us = self._errors_us[place - 1] if place else 0
        if said_us <= CALM_US:
            return said_us
        return min(said_us, BELIEVED_US) if self.faults(at_us - SAMPLES_US, at_us) else CALM_US

    def slewed_us(self, at_us: int) -> int:
        """How far off a shard may be because it makes small steps good by and by."""
        befores_us = (0, *self._offsets_us)
        sizes_us = map(sub, self._offsets_us, befores_us)
        return sum(
            abs(size_us)
            for from_us, size_us in zip(self.steps_us, sizes_us, strict=False)
            if abs(size_us) <= SLEWED_US and from_us <= at_us <= from_us + SLEWING_US
        )

    def is_stepped(self, from_us: int, until_us: int) -> bool:
        """Whether the clock was set to another time between two instants."""
        return any(from_us <= at_us <= until_us for at_us in self.steps_us)

    def faults(self, from_us: int, until_us: int, kinds: tuple[str, ...] = ()) -> list[Fault]:
        """What was broken at some time between two instants."""
        # The first that may have lasted until then, and the last that had begun by the other.
        first = bisect_left(self._faults_until_us, from_us)
        last = bisect_right(self._faults_from_us, until_us)
        return [
            fault
            for fault in self._faults[first:last]
            if fault.until_us >= from_us and (not kinds or fault.kind in kinds)
        ]


def _said(errors: Sequence[ClockError]) -> tuple[list[int], list[int]]:
    """From which instants on which error counts: the largest of those said about then."""
    told = sorted(errors, key=lambda one: one.at_us)
    at_us = [one.at_us for one in told]
    begins_us = {one - ERROR_HOLDS_US for one in at_us}
    ends_us = {one + ERROR_HOLDS_US + 1 for one in at_us}
    edges_us = sorted(begins_us | ends_us)
    return edges_us, [
        max(
            (
                one.error_us
                for one in told[
                    bisect_left(at_us, edge_us - ERROR_HOLDS_US) : bisect_right(
                        at_us, edge_us + ERROR_HOLDS_US
                    )
                ]
            ),
            default=0,
        )
        for edge_us in edges_us
    ]


def _down(history: History) -> Iterator[Fault]:
    """The windows in which no shard was there at all."""
    if not history.lives:
        return
    covered_us = history.started_us
    for life in sorted(history.lives, key=lambda life: life.from_us):
        if life.from_us > covered_us:
            yield Fault(kind="down", from_us=covered_us, until_us=life.from_us)
        until_us = life.able_until_us
        covered_us = max(covered_us, history.ended_us if until_us is None else until_us)
    if covered_us < history.ended_us:
        yield Fault(kind="down", from_us=covered_us, until_us=history.ended_us)
