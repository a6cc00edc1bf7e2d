"""Durations: text such as "60s", "5m" or "1h30m" for people, integer microseconds for code.

Invariant: `parse_duration(format_duration(us)) == us` for every duration up to `MAX_DURATION_US`.
A day is 24 hours and a week is 7 days: a duration is elapsed time, independent of any calendar.
"""

import re
from functools import lru_cache
from typing import Final

from wheelsched.errors import InvalidDuration, quoted

MICROSECOND: Final = 1
MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

# Ten thousand years is further away than any due time, and every sum still fits a bigint.
MAX_DURATION_US: Final = 10_000 * 366 * DAY

_UNITS: Final = {
    "w": WEEK,
    "d": DAY,
    "h": HOUR,
    "m": MINUTE,
    "s": SECOND,
    "ms": MILLISECOND,
    "us": MICROSECOND,
}

# The order is part of the grammar: "30m1h" and "5m5m" are probably typos.
# ASCII only: `\d` would also match the digits of every other script.
_GRAMMAR: Final = re.compile(
    "".join(rf"(?:(?P<{unit}>[0-9]{{1,18}}){unit}(?![a-z]))?" for unit in _UNITS)
)


# Most jobs use the same few durations. Errors are not cached.
@lru_cache(maxsize=1_024)
def parse_duration(text: str, *, pointer: str = "") -> int:
    """Parse a duration such as `90s`, `1h30m` or `250ms` into microseconds."""
    if text.startswith("-"):
        raise InvalidDuration(
            f"{quoted(text)} is negative; the shortest duration is '0s'", pointer=pointer
        )
    matched = _GRAMMAR.fullmatch(text)
    if not text or matched is None:
        raise InvalidDuration(
            f"{quoted(text)} is not a valid duration; write whole numbers with the units "
            "w, d, h, m, s, ms, us, largest first, e.g. '90s' or '1h30m'",
            pointer=pointer,
        )
    duration_us = sum(
        int(amount) * _UNITS[unit] for unit, amount in matched.groupdict(default="0").items()
    )
    if duration_us > MAX_DURATION_US:
        raise InvalidDuration(
            f"{quoted(text)} is too long; the longest duration is "
            f"'{format_duration(MAX_DURATION_US)}'",
            pointer=pointer,
        )
    return duration_us


def format_duration(duration_us: int) -> str:
    """Format a duration as short as possible: 5_400_000_000 is `1h30m`, and 0 is `0s`."""
    if duration_us < 0:
        raise InvalidDuration(f"a duration of {duration_us} µs is negative")
    parts = []
    rest_us = duration_us
    for unit, unit_us in _UNITS.items():
        amount, rest_us = divmod(rest_us, unit_us)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
