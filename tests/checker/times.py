"""Two clocks and the windows in which something was broken."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tests.checker.records import Fault, History

SECOND_US = 1_000_000
ERROR_HOLDS_US = 3 * SECOND_US  # around the instant at which a shard was asked
BELIEVED_US = 3_500_000  # half of a lease: whoever waits longer for an answer owns nothing


class Times:
    """The database's clock against the reference."""

    def __init__(self, history: History) -> None:
        self._from_us = [offset.from_us for offset in history.offsets]
        self._offsets_us = [offset.offset_us for offset in history.offsets]
        self._faults = (*history.faults, *_down(history))
        self._ended_us = history.ended_us
        self._errors = sorted(history.clock_errors, key=lambda one: one.at_us)
        self._errors_at_us = [one.at_us for one in self._errors]

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
        said_us = max(
            (
                one.error_us
                for one in self._errors[
                    bisect_left(self._errors_at_us, at_us - ERROR_HOLDS_US) : bisect_right(
                        self._errors_at_us, at_us + ERROR_HOLDS_US
                    )
                ]
            ),
            default=0,
        )
        return min(said_us, BELIEVED_US)

    def is_stepped(self, from_us: int, until_us: int) -> bool:
        """Whether the clock was set to another time between two instants."""
        return any(from_us <= at_us <= until_us for at_us in self._from_us)

    def faults(self, from_us: int, until_us: int, kinds: tuple[str, ...] = ()) -> list[Fault]:
        """What was broken at some time between two instants."""
        return [
            fault
            for fault in self._faults
            if fault.from_us <= until_us
            and fault.until_us >= from_us
            and (not kinds or fault.kind in kinds)
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
