"""The lines of a recurrence: DTSTART, RRULE and EXDATE, as calendars and people write them.

Invariant: what `normalise` gives, `rrule.read` reads. Spaces around `:`, `;`, `=` and `,` are
dropped. Lines may be separated by spaces, and folded as RFC 5545 folds them.
"""

import re
from typing import Final

from wheelsched.core import rrule
from wheelsched.errors import InvalidRecurrence, quoted

_ORDER: Final = ("DTSTART", "RRULE", "EXDATE")
_PROPERTY: Final = r"(?:DTSTART|RRULE|EXDATE|RDATE|EXRULE)"
_MEANT: Final = re.compile(
    rf"\s*(?:{_PROPERTY}\b|BEGIN:|(?:INTERVAL|COUNT|UNTIL|WKST|BY[A-Z]+)\s*=|(?:.*\W)?FREQ\s*=)",
    re.IGNORECASE | re.DOTALL,
)
# A long line goes on in the next after a space. Lines that are merely indented are lines.
_FOLD: Final = re.compile(rf"\r?\n[ \t](?!\s*{_PROPERTY}[:;])", re.IGNORECASE)
_SPACED: Final = re.compile(rf"[ \t]*([:;=,])[ \t]*(?!{_PROPERTY}[:;])", re.IGNORECASE)


def is_recurrence(text: str) -> bool:
    """Whether a text was meant as a recurrence rather than as another kind of schedule."""
    return _MEANT.match(text) is not None


def normalise(expression: str, *, first: str, is_started: bool, timezone: str) -> str:
    """The lines of a recurrence in capitals, DTSTART first.

    Where it is missing, it is `first`. Unless the schedule has a start, that is merely the moment
    of registration: BYHOUR=9 then means nine o'clock, not its minute and its second.
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
    for coarse, fine in (("BYHOUR=", "BYMINUTE="), ("BYMINUTE=", "BYSECOND=")):
        if coarse in rule and fine not in rule and "FREQ=SECONDLY" not in rule:
            rule = f"{rule};{fine}0"
    return rule


def _lines(expression: str, timezone: str) -> list[tuple[str, str]]:
    """The (name, value) of each line; the zone of a line must be the zone of the job."""
    lines: list[tuple[str, str]] = []
    for line in _SPACED.sub(r"\1", _FOLD.sub("", expression)).split():
        head, colon, value = line.rpartition(":")
        name, *parameters = (head if colon else "RRULE").upper().split(";")
        if name not in _ORDER:
            raise InvalidRecurrence(
                f"{name[:40]!r} is not supported; write DTSTART, one RRULE and EXDATE, and what "
                "does not fit as another job"
            )
        if not colon and any(known == "RRULE" for known, _ in lines):
            raise InvalidRecurrence(
                f"{quoted(line)} stands alone; separate the parts of a rule with ';' and the "
                "values of a part with ','"
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
            f"{name} has {quoted(parameter)}; the time zone of a schedule is its timezone, "
            f"here {timezone}"
        )
    if parameter != "VALUE=DATE":
        raise InvalidRecurrence(
            f"{name} has {quoted(parameter)}; it may have TZID={timezone}, VALUE=DATE-TIME or "
            "VALUE=DATE"
        )
    if "T" in value.upper():
        raise InvalidRecurrence(
            f"{name} has VALUE=DATE and a time, {quoted(value)}; write 20261225, or leave out "
            "VALUE=DATE"
        )
