"""Two clocks and the windows in which something was broken."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tests.checker.records import ClockError, Fault, History

SECOND_US = 1_000_000
ERROR_HOLDS_US = 3 * SECOND_US  # around the instant at which a shard was asked
BELIEVED_US = 3_500_000  # half of a lease: whoever waits longer for an answer owns nothing

CALM_US = 100_000  # on one machine, and without a fault, no answer takes as long as twice that
SAMPLES_US = 60 * SECOND_US  # how long a shard keeps what it has measured


class Times:
    """The database's clock against the reference."""

    def __init__(self, history: History) -> None:
        self._from_us = [offset.from_us for offset in history.offsets]
        self._offsets_us = [offset.offset_us for offset in history.offsets]
        faults = sorted((*history.faults, *_down(history)), key=lambda fault: fault.from_us)
        self._faults = faults
        self._faults_from_us = [fault.from_us for fault in faults]
        self._faults_until_us = list(accumulate((fault.until_us for fault in faults), max))
        self._edges_us, self._errors_us = _said(history.clock_errors)

    def database_us(self, at_us: int) -> int:
        """The database's time at an instant of the reference."""
        place = bisect_right(self._from_us, at_us)
        return at_us + (self._offsets_us[place - 1] if place else 0)

    def instant_us(self, database_us: int, by_us: int | None = None) -> int:
        """The last instant, not after `by_us`, at which the database's clock came to a time.

        It came to one that it jumped over when it jumped.
        """
        found = None
        starts = [-(1 << 62), *self._from_us]
        offsets = [0, *self._offsets_us]
        for place, (start_us, offset_us) in enumerate(zip(starts, offsets, strict=True)):
            end_us = starts[place + 1] if place + 1 < len(starts) else 1 << 62
            instant_us = database_us - offset_us
            if place and instant_us < start_us <= database_us - offsets[place - 1]:
                instant_us = start_us  # jumped over
            is_there = start_us <= instant_us < end_us
            if is_there and (found is None or by_us is None or instant_us <= by_us):
                found = instant_us
        return database_us - offsets[-1] if found is None else found

    def error_us(self, at_us: int) -> int:
        """The most that a shard said about then that its clock might be off, as far as believed."""
        place = bisect_right(self._edges_us, at_us)
        said_us = self._errors_us[place - 1] if place else 0
        if said_us <= CALM_US:
            return said_us
        return min(said_us, BELIEVED_US) if self.faults(at_us - SAMPLES_US, at_us) else CALM_US

    @property
    def is_steady(self) -> bool:
        """Whether the clock was never set."""
        return not self._from_us

    def is_stepped(self, from_us: int, until_us: int) -> bool:
        """Whether the clock was set to another time between two instants."""
        return any(from_us <= at_us <= until_us for at_us in self._from_us)

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
        covered_us = max(covered_us, history.ended_us if life.until_us is None else life.until_us)
    if covered_us < history.ended_us:
        yield Fault(kind="down", from_us=covered_us, until_us=history.ended_us)
