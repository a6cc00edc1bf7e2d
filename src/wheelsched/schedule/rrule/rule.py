"""Parses an RRULE, checks it against RFC 5545 and limits its cost.

Invariant: every `Rule` that this module returns can be expanded. Its numbers are in the ranges of
the RFC, its parts may be combined, and an interval below a day either divides the day or has no
BYHOUR, BYMINUTE or BYSECOND.

Differences from the RFC: DTSTART itself is due only if the rule matches it. Narrower: one RRULE,
no RDATE, no EXRULE, not both COUNT and UNTIL, BYSETPOS only for the days of a month or a year.
Wider: an UNTIL without a time includes its whole day, and an EXDATE without a time excludes its
whole day, whatever DTSTART is.
"""

import re
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from wheelsched.errors import InvalidRecurrence
from wheelsched.schedule.spec import END_YEAR, FIRST_YEAR

Frequency = Literal["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]
FREQUENCIES: Final[tuple[Frequency, ...]] = get_args(Frequency)
WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
UNIT_S: Final = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
# If the number of due times differs from day to day, each day is counted: 10,000 take 10 ms.
MAX_DRIFTING_COUNT: Final = 10_000
_DAY_S: Final = 86_400
_NO_END_YEAR: Final = 10_000


class Weekday(Struct, frozen=True):
    """A BYDAY value. Monday is 0; a negative `nth` counts from the end of the month or the year."""

    weekday: int
    nth: int | None = None


class Stamp(Struct, frozen=True):
    """An iCalendar time: a wall-clock time, a UTC time if it ends with Z, or a date."""

    moment: datetime
    is_utc: bool
    is_date: bool = False


class Rule(Struct, frozen=True, kw_only=True):
    """A recurrence rule with its start and its exceptions."""

    start: Stamp
    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: Stamp | None = None
    week_start: int = 0
    months: tuple[int, ...] = ()
    week_numbers: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    weekdays: tuple[Weekday, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    excluded: tuple[Stamp, ...] = ()


# The parts that are lists of numbers: (field of Rule, least, greatest, may be negative).
_NUMBERS: Final = {
    "BYMONTH": ("months", 1, 12, False),
    "BYWEEKNO": ("week_numbers", 1, 53, True),
    "BYYEARDAY": ("year_days", 1, 366, True),
    "BYMONTHDAY": ("month_days", 1, 31, True),
    "BYHOUR": ("hours", 0, 23, False),
    "BYMINUTE": ("minutes", 0, 59, False),
    "BYSECOND": ("seconds", 0, 59, False),
    "BYSETPOS": ("positions", 1, 366, True),
}
_PARTS: Final = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_BYDAY: Final = re.compile(r"(?P<nth>[+-]?[0-9]{1,2})?(?P<weekday>MO|TU|WE|TH|FR|SA|SU)")
_STAMP: Final = re.compile(r"(?P<day>[0-9]{8})(T(?P<time>[0-9]{6})(?P<utc>Z)?)?")


# A small cache: compiling a spec reads its rule several times in a row and caches the result.
@lru_cache(maxsize=256)
def read(text: str) -> Rule:
    """Parse normalised lines."""
    lines = [tuple(line.split(":", 1)) for line in text.split("\n")]
    starts = [value for name, value in lines if name == "DTSTART"]
    rules = [value for name, value in lines if name == "RRULE"]
    if len(starts) != 1 or len(rules) != 1:
        raise InvalidRecurrence("a recurrence must have exactly one RRULE and at most one DTSTART")
    excluded = [value for name, value in lines if name == "EXDATE"]
    rule = Rule(
        start=_stamp("DTSTART", starts[0]),
        excluded=tuple(_stamp("EXDATE", one) for value in excluded for one in value.split(",")),
        **_parts(rules[0]),
    )
    _check_together(rule)
    _check_interval(rule)
    return rule


# Jobs that start at different times often share a rule.
@lru_cache(maxsize=4096)
def _parts(text: str) -> dict[str, Any]:
    """The fields of `Rule` that an RRULE sets."""
    fields: dict[str, Any] = {}
    parts = [part.partition("=") for part in text.split(";") if part]
    names = [name for name, _, _ in parts]
    for name, _, value in parts:
        if name not in _PARTS or names.count(name) > 1:
            raise InvalidRecurrence(
                f"{name[:40]!r} is unknown or repeated; a rule may have each of: "
                f"{', '.join(sorted(_PARTS))}"
            )
        field, content = _part(name, value)
        fields[field] = content
    if "frequency" not in fields:
        raise InvalidRecurrence(f"FREQ is missing; must be one of: {', '.join(FREQUENCIES)}")
    return fields


def _part(name: str, value: str) -> tuple[str, object]:
    match name:
        case "FREQ":
            if value not in FREQUENCIES:
                raise InvalidRecurrence(
                    f"FREQ={value} is not valid; must be one of: {', '.join(FREQUENCIES)}"
                )
            return "frequency", value
        case "WKST":
            if value not in WEEKDAYS:
                raise InvalidRecurrence(
                    f"WKST={value} is not valid; must be one of: {', '.join(WEEKDAYS)}"
                )
            return "week_start", WEEKDAYS.index(value)
        case "UNTIL":
            until = _stamp(name, value, end_of_day=True, end_year=_NO_END_YEAR)
            # Calendars write 99991231 for a rule without an end.
            return "until", until if until.moment.year < END_YEAR else None
        case "INTERVAL" | "COUNT":
            return name.lower(), _integer(name, value, 1, 999_999_999, signed=False)
        case "BYDAY":
            return "weekdays", tuple(_weekday(one) for one in value.split(","))
        case _:
            field, low, high, signed = _NUMBERS[name]
            numbers = {_integer(name, one, low, high, signed=signed) for one in value.split(",")}
            return field, tuple(sorted(numbers))


def _integer(name: str, text: str, low: int, high: int, *, signed: bool) -> int:
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not low <= (abs(number) if signed else number) <= high:
        sign = f" or -{high} to -{low}" if signed else ""
        raise InvalidRecurrence(f"{name}={text[:40]} is not valid; expected {low} to {high}{sign}")
    return number


def _weekday(text: str) -> Weekday:
    matched = _BYDAY.fullmatch(text)
    if matched is None:
        raise InvalidRecurrence(f"BYDAY={text[:40]} is not valid; write e.g. MO, 1MO or -1FR")
    nth = _integer("BYDAY", matched["nth"], 1, 53, signed=True) if matched["nth"] else None
    return Weekday(WEEKDAYS.index(matched["weekday"]), nth)


def _stamp(name: str, text: str, *, end_of_day: bool = False, end_year: int = END_YEAR) -> Stamp:
    matched = _STAMP.fullmatch(text)
    time = (matched["time"] if matched else None) or ("235959" if end_of_day else "000000")
    try:
        if matched is None or not FIRST_YEAR <= int(text[:4]) < end_year:
            raise ValueError(text)  # noqa: TRY301 - one message for every problem
        day = date(int(text[:4]), int(text[4:6]), int(text[6:8]))
        moment = datetime(  # noqa: DTZ001 - a wall clock has no zone
            day.year, day.month, day.day, int(time[:2]), int(time[2:4]), int(time[4:])
        )
    except ValueError as error:
        raise InvalidRecurrence(
            f"{name}={text[:40]} is not a valid time from {FIRST_YEAR} to {end_year - 1}; "
            "write e.g. 20260308T093000, or 20260308T093000Z for UTC"
        ) from error
    return Stamp(moment, is_utc=bool(matched["utc"]), is_date=matched["time"] is None)


def _check_together(rule: Rule) -> None:
    """Refuse the combinations that RFC 5545 forbids, and those that make no sense."""
    frequency = rule.frequency
    counted = [day for day in rule.weekdays if day.nth is not None]
    refusals = {
        "COUNT and UNTIL: use one of them": rule.count and rule.until,
        "BYWEEKNO without FREQ=YEARLY": rule.week_numbers and frequency != "YEARLY",
        "BYYEARDAY with FREQ=DAILY, WEEKLY or MONTHLY": rule.year_days
        and frequency in ("DAILY", "WEEKLY", "MONTHLY"),
        "BYMONTHDAY with FREQ=WEEKLY": rule.month_days and frequency == "WEEKLY",
        "a numbered BYDAY such as 1MO without FREQ=MONTHLY or YEARLY": counted
        and (frequency not in ("MONTHLY", "YEARLY") or rule.week_numbers),
        "BYSETPOS without FREQ=YEARLY or MONTHLY: name the days with BYDAY": rule.positions
        and frequency not in ("YEARLY", "MONTHLY"),
        "BYSETPOS with BYWEEKNO: name the days with BYDAY": rule.positions and rule.week_numbers,
        "BYSETPOS with several times a day: give one hour, minute and second": rule.positions
        and max(len(rule.hours), len(rule.minutes), len(rule.seconds)) > 1,
    }
    for refusal, is_met in refusals.items():
        if is_met:
            raise InvalidRecurrence(f"a rule cannot have {refusal}")


def _check_interval(rule: Rule) -> None:
    """Refuse intervals below a day whose times on a given day would have to be searched for."""
    if rule.frequency not in UNIT_S:
        return
    per_day = _DAY_S // UNIT_S[rule.frequency]
    if rule.interval > per_day:
        raise InvalidRecurrence(
            f"INTERVAL={rule.interval} with FREQ={rule.frequency} is longer than a day; "
            "use FREQ=DAILY, or a schedule like 'every 36h'"
        )
    if per_day % rule.interval == 0:
        return
    limits = {"HOURLY": rule.hours, "MINUTELY": rule.hours + rule.minutes}
    limited = limits.get(rule.frequency, rule.hours + rule.minutes + rule.seconds)
    if limited:
        raise InvalidRecurrence(
            f"INTERVAL={rule.interval} with FREQ={rule.frequency} drifts through the day, so it "
            f"rarely matches BYHOUR, BYMINUTE or BYSECOND; use an interval that divides {per_day}"
        )
    if rule.count is not None and rule.count > MAX_DRIFTING_COUNT:
        raise InvalidRecurrence(
            f"COUNT={rule.count} is too large for an interval that does not divide the day; at "
            f"most {MAX_DRIFTING_COUNT} is allowed. Use UNTIL, or an interval that divides "
            f"{per_day}"
        )
