"""`every 5m`: due each interval of elapsed time, counted from an anchor.

Invariant: every due time is the anchor plus a whole number of intervals, so that neither a
restart nor a change of clocks moves it.
"""

from functools import lru_cache
from typing import Final

from wheelsched.core.duration import MILLISECOND, SECOND, format_duration, parse_duration
from wheelsched.core.spec import END_US
from wheelsched.errors import InvalidDuration, InvalidInterval, quoted

MIN_INTERVAL_US: Final = SECOND


def normalise(expression: str) -> str:
    """The shortest spelling of an interval."""
    text = "".join(expression.lower().split())
    if "M" in expression:
        raise InvalidInterval(
            f"{quoted(expression.strip())} may mean minutes or months; write 5m for minutes, and "
            "for months a cron expression such as '0 0 1 * *'"
        )
    try:
        duration_us = parse_duration(text)
    except InvalidDuration as error:
        raise InvalidInterval(str(error)) from error
    if duration_us < MIN_INTERVAL_US or duration_us % MILLISECOND:
        raise InvalidInterval(
            f"every {text} is too fine; an interval is at least 1s, in whole milliseconds"
        )
    return format_duration(duration_us)


@lru_cache(maxsize=4096)
def interval_us(expression: str) -> int:
    """The microseconds of a normalised interval."""
    return parse_duration(expression)


class Every:
    """A `Recurrence` of one interval, due at its anchor and ever after."""

    __slots__ = ("_anchor_us", "_interval_us")

    def __init__(self, interval_us: int, anchor_us: int) -> None:
        assert interval_us >= MIN_INTERVAL_US
        self._interval_us = interval_us
        self._anchor_us = anchor_us - anchor_us % MILLISECOND

    def next_after(self, after_us: int) -> int | None:
        """The least due time > `after_us`."""
        due_us = self._anchor_us + self._index_after(after_us) * self._interval_us
        return due_us if due_us < END_US else None

    def last_before(self, before_us: int) -> int | None:
        """The greatest due time < `before_us`."""
        index = self._index_after(min(before_us, END_US) - 1) - 1
        return None if index < 0 else self._anchor_us + index * self._interval_us

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]."""
        until_us = min(until_us, END_US - 1)
        return max(0, self._index_after(until_us) - self._index_after(after_us))

    def _index_after(self, instant_us: int) -> int:
        """How many due times are not later than an instant."""
        return max(0, (instant_us - self._anchor_us) // self._interval_us + 1)
