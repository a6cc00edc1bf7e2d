"""`in 5m`: a one-off that is due so long after its registration.

Invariant: no schedule that is stored is relative. It is made absolute once, when it is
registered, so that it means the same whenever it is read.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from wheelsched.core import at
from wheelsched.core.duration import parse_duration
from wheelsched.core.duration_words import in_units
from wheelsched.core.spec import END_US
from wheelsched.errors import InvalidDuration, InvalidInstant, quoted

_IN: Final = re.compile(r"\s*in\b", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# More than any duration in words needs: nothing longer is looked at.
_MAX_TEXT: Final = 80


def is_relative(schedule: object) -> bool:
    """Whether a schedule as a user wrote it counts from its registration."""
    written = schedule.get("at") if isinstance(schedule, dict) else schedule
    return isinstance(written, str) and _IN.match(written) is not None


def absolute(schedule: object, now_us: int) -> object:
    """The same schedule with the instant that it means now."""
    if not is_relative(schedule):
        return schedule
    if isinstance(schedule, dict):
        return {**schedule, "at": _instant(schedule["at"], now_us, "/schedule/at")}
    assert isinstance(schedule, str)
    return _instant(schedule, now_us, "/schedule")


def _instant(text: str, now_us: int, pointer: str) -> str:
    """An instant to the millisecond, not before the duration has passed."""
    written = _IN.sub("", text, count=1) if len(text) <= _MAX_TEXT else ""
    try:
        duration_us = parse_duration(in_units(written))
    except InvalidDuration as error:
        raise InvalidInstant(
            f"{quoted(text)} is not a time from now; write 'in 5m', 'in 2 hours' or 'in 1h30m'",
            pointer=pointer,
        ) from error
    due_us = at.round_up(now_us + duration_us)
    if due_us >= END_US:
        raise InvalidInstant(f"{quoted(text)} is later than 2199-12-31T23:59:59Z", pointer=pointer)
    moment = _EPOCH + timedelta(microseconds=due_us)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
