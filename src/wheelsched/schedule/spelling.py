"""Recognises schedules in the notation of other schedulers, and suggests the one used here.

Invariant: a valid schedule is never refused here.
"""

from typing import Final

from wheelsched.errors import InvalidCron, InvalidDuration, quoted
from wheelsched.schedule.cron import expression as cron
from wheelsched.values.duration import parse_duration
from wheelsched.values.duration_words import to_units

_POINTS_IN_TIME: Final = frozenset({"at", "now", "today", "tomorrow", "tonight", "next"})


def check_spelling(value: str) -> None:
    """Refuse text that looks like another kind of schedule, and say how to write it."""
    text = value.strip()
    first, _, rest = text.partition(" ")
    if first.lower() == "@every":
        raise InvalidCron(f"write 'every {rest.strip()[:40]}', without the '@'")
    if first.upper().startswith(("TZ=", "CRON_TZ=")):
        zone = first.partition("=")[2]
        raise InvalidCron(
            f"{quoted(first)} is not part of a schedule; set the field timezone to "
            f"{quoted(zone)}, and the schedule to {quoted(rest.strip())}"
        )
    if f"@{text.upper()}" in cron.ALIASES:
        raise InvalidCron(f"write '@{text.lower()}', with the '@'")
    if first.lower() in _POINTS_IN_TIME:
        raise InvalidCron(
            f"{quoted(text)} is not a valid schedule; to run once write an instant, e.g. "
            "2026-03-08T09:30:00, or 'in 5m' for five minutes from now"
        )
    if _is_duration(text):
        raise InvalidCron(
            f"{quoted(text)} is a duration; write 'every {text}' to repeat, or 'in {text}' to run "
            "once"
        )


def _is_duration(text: str) -> bool:
    try:
        parse_duration(to_units(text))
    except InvalidDuration:
        return False
    return True
