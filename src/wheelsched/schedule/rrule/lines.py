"""Normalises the DTSTART, RRULE and EXDATE lines that calendars and people write.

Invariant: `rrule.read` accepts everything that `normalise` returns. Spaces around `:`, `;`, `=`
and `,` are dropped. Lines may be separated by spaces, or folded as in RFC 5545.
"""

import re
from typing import Final

from wheelsched.errors import InvalidRecurrence, quoted
from wheelsched.schedule.rrule import rule as rrule

_ORDER: Final = ("DTSTART", "RRULE", "EXDATE")
_PROPERTY: Final = r"(?:DTSTART|RRULE|EXDATE|RDATE|EXRULE)"
_MEANT: Final = re.compile(
    rf"\s*(?:{_PROPERTY}\b|BEGIN:|(?:INTERVAL|COUNT|UNTIL|WKST|BY[A-Z]+)\s*=|(?:.*\W)?FREQ\s*=)",
    re.IGNORECASE | re.DOTALL,
)
# A folded line continues on the next line after a space. An indented property is a line of its own.
_FOLD: Final = re.compile(rf"\r?\n[ \t](?!\s*{_PROPERTY}[:;])", re.IGNORECASE)
# Each part with the frequencies that step through its values.
_FINER: Final = {"BYMINUTE=": ("MINUTELY", "SECONDLY"), "BYSECOND=": ("SECONDLY",)}
_SPACED: Final = re.compile(rf"[ \t]*([:;=,])[ \t]*(?!{_PROPERTY}[:;])", re.IGNORECASE)


def is_recurrence(text: str) -> bool:
    """Whether a text looks like a recurrence rather than another kind of schedule."""
    return _MEANT.match(text) is not None


def normalise(expression: str, *, first: str, is_started: bool, timezone: str) -> str:
    """The lines of a recurrence in upper case, with DTSTART first.

    If DTSTART is missing, it becomes `first`. Without a start in the schedule, `first` is only the
    moment of registration. Then BYHOUR=9 means nine o'clock sharp, not the minute and the second
    of the registration.
    """
    lines = _lines(expression, timezone)
    if not any(name == "DTSTART" for name, _ in lines):
        if not is_started:
            lines = [(name, _on_the_hour(value)) for name, value in lines]
        lines.append(("DTSTART", first))
    lines.sort(key=lambda line: _ORDER.index(line[0]))
    text = "\n".join(f"{name}:{value}" for name, value in lines)
    rrule.read(text)
    return text


def _on_the_hour(rule: str) -> str:
    """Adds BYMINUTE=0 and BYSECOND=0 to a rule with an hour, unless it steps through them."""
    for part, frequencies in _FINER.items():
        is_given = part in rule or any(f"FREQ={frequency}" in rule for frequency in frequencies)
        if not is_given and re.search("BYHOUR=|BYMINUTE=", rule):
            rule = f"{rule};{part}0"
    return rule


def _lines(expression: str, timezone: str) -> list[tuple[str, str]]:
    """The (name, value) of each line. The zone of a line must be the zone of the job."""
    lines: list[tuple[str, str]] = []
    for line in _SPACED.sub(r"\1", _FOLD.sub("", expression)).split():
        head, colon, value = line.rpartition(":")
        name, *parameters = (head if colon else "RRULE").upper().split(";")
        if name not in _ORDER:
            raise InvalidRecurrence(
                f"{name[:40]!r} is not supported; use DTSTART, one RRULE and EXDATE, and another "
                "job for the rest"
            )
        if not colon and any(known == "RRULE" for known, _ in lines):
            raise InvalidRecurrence(
                f"{quoted(line)} is not part of a rule; separate the parts of a rule with ';' and "
                "the values of a part with ','"
            )
        for parameter in parameters:
            _check_parameter(name, parameter, value, timezone)
        lines.append((name, value.upper()))
    return lines


def _check_parameter(name: str, parameter: str, value: str, timezone: str) -> None:
    if parameter in (f"TZID={timezone.upper()}", "VALUE=DATE-TIME"):
        return
    if parameter.startswith("TZID="):
        raise InvalidRecurrence(
            f"{name} has {quoted(parameter)}, but the time zone of the job is {timezone}; "
            "set the field timezone instead"
        )
    if parameter != "VALUE=DATE":
        raise InvalidRecurrence(
            f"{name} has {quoted(parameter)}; must be one of: TZID={timezone}, VALUE=DATE-TIME, "
            "VALUE=DATE"
        )
    if "T" in value.upper():
        raise InvalidRecurrence(
            f"{name} has VALUE=DATE and a time, {quoted(value)}; write 20261225, or leave out "
            "VALUE=DATE"
        )
