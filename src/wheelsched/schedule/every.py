"""The `every` schedule: due at each interval of elapsed time, counted from an anchor.

Invariant: every due time is the anchor plus a whole number of intervals. Neither a restart nor a
clock change moves it.
"""

import re
from functools import lru_cache
from typing import Final

from wheelsched.errors import InvalidDuration, InvalidInterval, quoted
from wheelsched.schedule.spec import END_US
from wheelsched.values.duration import MILLISECOND, SECOND, format_duration, parse_duration
from wheelsched.values.duration_words import to_units

MIN_INTERVAL_US: Final = SECOND

_MAX_TEXT: Final = 80
_MONTHS_OR_MINUTES: Final = re.compile(r"M(?![A-Za-z])")
_CALENDAR_WORDS: Final = {
    "day": "@daily for midnight, '0 9 * * *' for 09:00, or 'every 24h' of elapsed time",
    "week": "@weekly for Sunday at midnight, '0 9 * * MON' for Mondays at 09:00, or 'every 7d'",
    "month": "@monthly, or '0 9 1 * *' for the 1st at 09:00",
    "year": "@yearly, or '0 9 1 1 *' for January 1 at 09:00",
    "weekday": "'0 9 * * 1-5' for Monday to Friday at 09:00",
    "weekend": "'0 9 * * 6,0' for Saturday and Sunday at 09:00",
    **{
        f"{name}day": f"'0 9 * * {name[:3].upper()}' for {name.capitalize()}days at 09:00"
        for name in ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")
    },
}


def normalise(expression: str) -> str:
    """The canonical form of an interval."""
    text = to_units(expression)
    if _MONTHS_OR_MINUTES.search(expression):
        raise InvalidInterval(
            f"{quoted(expression.strip())} may mean minutes or months; write 5m for minutes, or a "
            "cron expression for months, e.g. '0 0 1 * *'"
        )
    try:
        duration_us = parse_duration(text)
    except InvalidDuration as error:
        raise InvalidInterval(_instead_of(expression) or str(error)) from error
    if duration_us < MIN_INTERVAL_US or duration_us % MILLISECOND:
        raise InvalidInterval(
            f"every {text} is too short or too fine; an interval is at least 1s, in whole "
            "milliseconds"
        )
    return format_duration(duration_us)


def _instead_of(expression: str) -> str | None:
    """The error for a day, a month or a time of day, which is not elapsed time."""
    for word in re.findall("[a-z]+", expression[:_MAX_TEXT].lower()):
        for known, instead in _CALENDAR_WORDS.items():
            if word.removesuffix("s") == known:
                return (
                    f"{quoted(expression.strip())} is not an interval of elapsed time, e.g. 5m "
                    f"or '2 hours'; write {instead}"
                )
    return None


@lru_cache(maxsize=4096)
def interval_us(expression: str) -> int:
    """The microseconds of a normalised interval."""
    return parse_duration(expression)


class Every:
    """A `Recurrence` of one interval, due at its anchor and after each interval from there."""

    __slots__ = ("_anchor_us", "_interval_us")

    def __init__(self, interval_us: int, anchor_us: int) -> None:
        assert interval_us >= MIN_INTERVAL_US
        self._interval_us = interval_us
        self._anchor_us = anchor_us - anchor_us % MILLISECOND

    def next_after(self, after_us: int) -> int | None:
        """The next due time > `after_us`, or None."""
        due_us = self._anchor_us + self._index_after(after_us) * self._interval_us
        return due_us if due_us < END_US else None

    def last_before(self, before_us: int) -> int | None:
        """The last due time < `before_us`, or None."""
        index = self._index_after(min(before_us, END_US) - 1) - 1
        return None if index < 0 else self._anchor_us + index * self._interval_us

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]."""
        until_us = min(until_us, END_US - 1)
        return max(0, self._index_after(until_us) - self._index_after(after_us))

    def _index_after(self, instant_us: int) -> int:
        """How many due times lie at or before an instant."""
        return max(0, (instant_us - self._anchor_us) // self._interval_us + 1)
