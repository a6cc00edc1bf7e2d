"""What people write who come from another scheduler, and how this one spells it.

Invariant: nothing that is a schedule here is refused here.
"""

from typing import Final

from wheelsched.core import cron
from wheelsched.core.duration import parse_duration
from wheelsched.core.duration_words import in_units
from wheelsched.errors import InvalidCron, InvalidDuration, quoted

_POINTS_IN_TIME: Final = frozenset({"at", "now", "today", "tomorrow", "tonight", "next"})


def check_spelling(written: str) -> None:
    """Refuse what is no cron expression but nearly another schedule, and say which."""
    text = written.strip()
    first, _, rest = text.partition(" ")
    if first.lower() == "@every":
        raise InvalidCron(f"write 'every {rest.strip()[:40]}', without the '@'")
    if first.upper().startswith(("TZ=", "CRON_TZ=")):
        zone = first.partition("=")[2]
        raise InvalidCron(
            f"{quoted(first)} does not belong here; write the time zone in the field timezone, "
            f"here {quoted(zone)}, and the schedule as {quoted(rest.strip())}"
        )
    if f"@{text.upper()}" in cron.ALIASES:
        raise InvalidCron(f"write '@{text.lower()}', with the '@'")
    if first.lower() in _POINTS_IN_TIME:
        raise InvalidCron(
            f"{quoted(text)} is not a schedule; to run once write an instant such as "
            "2026-03-08T09:30:00, or 'in 5m' for five minutes from now"
        )
    if _is_duration(text):
        raise InvalidCron(
            f"{quoted(text)} is a duration; write 'every {text}' to repeat, or 'in {text}' to run "
            "once"
        )


def _is_duration(text: str) -> bool:
    try:
        parse_duration(in_units(text))
    except InvalidDuration:
        return False
    return True
