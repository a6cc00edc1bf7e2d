"""Converts durations in words, such as `an hour and 30 minutes`, to the form of `parse_duration`.

Invariant: text that is not a duration in words is returned without its spaces and otherwise
unchanged, so that `parse_duration` reports the error.
"""

import re
from typing import Final

_UNITS: Final = {
    "w": ("w", "wk", "wks", "week", "weeks"),
    "d": ("d", "day", "days"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "msecs", "millisecond", "milliseconds"),
}
_UNIT_OF: Final = {word: unit for unit, words in _UNITS.items() for word in words}
_AMOUNT: Final = re.compile(r"(?P<number>[0-9]+|an?\b)\s*(?P<word>[a-z]+)\s*(?:,|and\b)?\s*")
# "every day" means a time of day, which elapsed time does not keep. So longer units are left out.
_ALONE: Final = {"second": "1s", "minute": "1m", "hour": "1h"}


def to_units(text: str) -> str:
    """Rewrite a duration in the units w, d, h, m, s and ms, without spaces."""
    lowered = text.strip().lower()
    if lowered in _ALONE:
        return _ALONE[lowered]
    amounts = list(_AMOUNT.finditer(lowered))
    is_whole = "".join(amount[0] for amount in amounts) == lowered
    if not amounts or not is_whole or any(amount["word"] not in _UNIT_OF for amount in amounts):
        return "".join(lowered.split())
    return "".join(
        ("1" if amount["number"].startswith("a") else amount["number"]) + _UNIT_OF[amount["word"]]
        for amount in amounts
    )
