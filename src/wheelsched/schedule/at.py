"""The `at` schedule: one instant in ISO 8601, with an offset or as local time in the job's zone.

Invariant: the spec stores a local time as local, and compiling resolves it. If the zone rules
change before the due time, the instant moves and the local time stays. Due times are whole
milliseconds, rounded up.
"""

import re
from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from wheelsched.errors import InvalidInstant, quoted
from wheelsched.schedule.dst import Timeline, instant_us, wall_of
from wheelsched.schedule.spec import END_YEAR, FIRST_YEAR
from wheelsched.values.duration import MILLISECOND, SECOND

# `fromisoformat` would also accept weeks (2026-W10-7), "20260308" and any character as "T".
_INSTANT: Final = re.compile(
    r"(?P<year>[0-9]{4,9})-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}"
    r"(:[0-9]{2}(\.[0-9]{1,6}(?P<finer>[0-9]{1,3})?)?)?"
    r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_MEANT: Final = re.compile(r"[0-9]{4,}-[0-9]|[0-9]{8}t", re.IGNORECASE)
_DATE: Final = re.compile(r"(?P<year>[0-9]{4,9})-[0-9]{2}-[0-9]{2}")
# Twice the length of the longest valid time. Longer text is not matched at all.
_MAX_TEXT: Final = 80


class At:
    """A `Recurrence` of listed instants: usually one, none in a DST gap, two in an overlap."""

    __slots__ = ("_due_us",)

    def __init__(self, due_us: list[int]) -> None:
        self._due_us = sorted(due_us)

    def next_after(self, after_us: int) -> int | None:
        """The next due time > `after_us`, or None."""
        index = bisect_right(self._due_us, after_us)
        return self._due_us[index] if index < len(self._due_us) else None

    def last_before(self, before_us: int) -> int | None:
        """The last due time < `before_us`, or None."""
        index = bisect_left(self._due_us, before_us)
        return self._due_us[index - 1] if index > 0 else None

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]."""
        return max(0, bisect_right(self._due_us, until_us) - bisect_right(self._due_us, after_us))


def normalise(expression: str) -> str:
    """The canonical form of a time: UTC with a Z if it has an offset, otherwise local."""
    moment = read_moment(expression)
    if moment.tzinfo is None:
        return moment.isoformat()
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def round_up(instant_us: int) -> int:
    """Round an instant up to a whole millisecond."""
    return -(-instant_us // MILLISECOND) * MILLISECOND


def instants_us(moment: datetime, timeline: Timeline) -> list[int]:
    """The instants of a time. The zone's timeline resolves a local one."""
    if moment.tzinfo is not None:
        return [instant_us(moment)]
    wall_s = wall_of(moment)
    found_us = []
    for instant_s in timeline.resolve(wall_s):
        is_shown = instant_s + timeline.at(instant_s).offset_s == wall_s
        # The end of a gap is a whole second, so the fraction is dropped there.
        found_us.append(instant_s * SECOND + (moment.microsecond if is_shown else 0))
    return found_us


def is_moment(text: str) -> bool:
    """Whether a text looks like a time rather than another kind of schedule."""
    return _MEANT.match(text) is not None


def is_endless(text: str) -> bool:
    """Whether a time or a date is past the last supported year, e.g. 9999-12-31."""
    try:
        return len(text) <= _MAX_TEXT and datetime.fromisoformat(text.strip()).year >= END_YEAR
    except ValueError:
        return False


def is_date(text: str) -> bool:
    """Whether a text has the form of a date, without a time."""
    return len(text) <= _MAX_TEXT and _DATE.fullmatch(text.strip()) is not None


# One registration reads its time three times: to detect, to normalise and to resolve it.
@lru_cache(maxsize=1_024)
def read_moment(text: str) -> datetime:
    """Parse a time to the microsecond; the result has a zone if the text has an offset."""
    matched = _INSTANT.fullmatch(text.strip().upper()) if len(text) <= _MAX_TEXT else None
    if matched is None:
        raise InvalidInstant(
            f"{quoted(text)} is not a valid time; write 2026-03-08T09:30:00 for local time, or "
            "2026-03-08T09:30:00Z with an offset"
        )
    _check_year(text, matched["year"])
    try:
        moment = datetime.fromisoformat(matched[0])
    except ValueError as error:
        raise InvalidInstant(f"{quoted(text)} is not a valid date and time: {error}") from error
    if matched["finer"] and int(matched["finer"]):
        # Round up, but not into the next second: that one may belong to the repeated hour.
        moment = moment.replace(microsecond=min(moment.microsecond + 1, SECOND - 1))
    return moment


def read_date(text: str) -> date:
    """Parse a date such as 2026-12-25."""
    matched = _DATE.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if matched is None:
        raise InvalidInstant(f"{quoted(text)} is not a valid date; write e.g. 2026-12-25")
    _check_year(text, matched["year"])
    try:
        return date.fromisoformat(matched[0])
    except ValueError as error:
        raise InvalidInstant(f"{quoted(text)} is not a valid date: {error}") from error


def _check_year(text: str, year: str) -> None:
    if not FIRST_YEAR <= int(year) < END_YEAR:
        raise InvalidInstant(
            f"{quoted(text)} is out of range; expected a year from {FIRST_YEAR} to {END_YEAR - 1}"
        )
