"""The `in 5m` schedule: a one-off that is due a given time after its registration.

Invariant: no stored schedule is relative. Registration makes it absolute, so that it means the
same whenever it is read.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from wheelsched.errors import InvalidDuration, InvalidInstant, quoted
from wheelsched.schedule import at
from wheelsched.schedule.spec import END_US
from wheelsched.values.duration import parse_duration
from wheelsched.values.duration_words import to_units

_IN: Final = re.compile(r"\s*in\b", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Longer than any duration in words. Longer text is not matched at all.
_MAX_TEXT: Final = 80


def is_relative(schedule: object) -> bool:
    """Whether a schedule counts from its registration."""
    value = schedule.get("at") if isinstance(schedule, dict) else schedule
    return isinstance(value, str) and _IN.match(value) is not None


def absolute(schedule: object, now_us: int) -> object:
    """Replace a relative time by its instant, counted from now."""
    if not is_relative(schedule):
        return schedule
    if isinstance(schedule, dict):
        return {**schedule, "at": _instant(schedule["at"], now_us, "/schedule/at")}
    assert isinstance(schedule, str)
    return _instant(schedule, now_us, "/schedule")


def _instant(text: str, now_us: int, pointer: str) -> str:
    """The instant after a duration from now, rounded up to the millisecond."""
    value = _IN.sub("", text, count=1) if len(text) <= _MAX_TEXT else ""
    try:
        duration_us = parse_duration(to_units(value))
    except InvalidDuration as error:
        raise InvalidInstant(
            f"{quoted(text)} is not a valid delay; write e.g. 'in 5m', 'in 2 hours' or 'in 1h30m'",
            pointer=pointer,
        ) from error
    due_us = at.round_up(now_us + duration_us)
    if due_us >= END_US:
        raise InvalidInstant(f"{quoted(text)} is later than 2199-12-31T23:59:59Z", pointer=pointer)
    moment = _EPOCH + timedelta(microseconds=due_us)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
