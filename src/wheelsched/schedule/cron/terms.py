"""Checks the terms of a cron field and converts them to croniter's notation.

Invariant: croniter interprets an accepted term as people do. Terms that it reads differently
(`5-5` as every minute, `50-10` wrapped around, `15W` as the 15th, `R` as a random number) never
reach it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from wheelsched.errors import InvalidCron


class Field(Struct, frozen=True):
    """One field of an expression: its name and its range of values."""

    name: str
    low: int
    high: int
    hash_high: int
    names: tuple[str, ...] = ()

    def value(self, text: str) -> int | None:
        """The value of a number or a name; None if the text is neither."""
        if text in self.names:
            return self.low + self.names.index(text)
        return int(text) if text.isdecimal() and self.low <= int(text) <= self.high else None


_MONTHS: Final = (
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

SECOND: Final = Field("second", 0, 59, 59)
MINUTE: Final = Field("minute", 0, 59, 59)
HOUR: Final = Field("hour", 0, 23, 23)
# A hashed day is at most 28, so that a job is due in every month.
DAY: Final = Field("day of month", 1, 31, 28)
MONTH: Final = Field("month", 1, 12, 12, _MONTHS)
WEEKDAY: Final = Field("day of week", 0, 7, 6, _WEEKDAYS)
FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)

_STEP: Final = r"(?:/(?P<step>[0-9]{1,9}))?"
_STAR: Final = re.compile(rf"\*{_STEP}")
_HASH: Final = re.compile(rf"H(?:\((?P<low>[0-9]{{1,2}})-(?P<high>[0-9]{{1,2}})\))?{_STEP}")
_SPAN: Final = re.compile(rf"(?P<low>[0-9A-Z]+)(?:-(?P<high>[0-9A-Z]+))?{_STEP}")
_NTH_WEEKDAY: Final = re.compile(r"(?P<weekday>[0-9A-Z]+)#(?P<nth>[1-5])")
_LAST_WEEKDAY: Final = re.compile(r"L(?P<after>[0-9A-Z]+)|(?P<before>[0-9A-Z]+)L")


Choose = Callable[[int, int, int], int]
"""Chooses a value for an `H`: (index of the field, low, high) -> a value in [low, high]."""


class Hash(Struct, frozen=True):
    """An `H` of a template: one value of [low, high], or every `step` from a hashed offset on."""

    field: int
    low: int
    high: int
    step: int | None

    def choice(self, choose: Choose) -> int:
        """The value, or the first of the steps."""
        if self.step is None:
            return choose(self.field, self.low, self.high)
        return choose(self.field, self.low, min(self.low + self.step - 1, self.high))

    def values(self, choice: int) -> Sequence[int]:
        return [choice] if self.step is None else range(choice, self.high + 1, self.step)


def read_term(index: int, term: str) -> str | Hash:
    """Check one term of a field and convert it to croniter's notation."""
    field = FIELDS[index]
    if matched := _STAR.fullmatch(term):
        _check_step(field, term, matched["step"])
        return term
    if term == "?" and field in (DAY, WEEKDAY):
        return "*"
    if matched := _HASH.fullmatch(term):
        return _hash(index, term, matched)
    if term == "L" and field is DAY:
        return term
    if field is WEEKDAY and (special := _special_weekday(term)):
        return special
    if matched := _SPAN.fullmatch(term):
        return _span(field, term, matched)
    raise _invalid(field, term)


def _hash(index: int, term: str, matched: re.Match[str]) -> Hash:
    field = FIELDS[index]
    low = int(matched["low"] or field.low)
    high = int(matched["high"] or field.hash_high)
    if not field.low <= low <= high <= field.high:
        raise _invalid(field, term)
    _check_step(field, term, matched["step"])
    return Hash(index, low, high, int(matched["step"]) if matched["step"] else None)


def _special_weekday(term: str) -> str | None:
    """Convert `1#2`, `MON#2`, `5L`, `L5` and `FRIL` to croniter's notation."""
    if matched := _NTH_WEEKDAY.fullmatch(term):
        weekday, spelling = matched["weekday"], f"{{}}#{matched['nth']}"
    elif matched := _LAST_WEEKDAY.fullmatch(term):
        weekday, spelling = matched["after"] or matched["before"], "L{}"
    else:
        return None
    value = WEEKDAY.value(weekday)
    return None if value is None else spelling.format(value % 7)


def _span(field: Field, term: str, matched: re.Match[str]) -> str:
    low = field.value(matched["low"])
    high = field.value(matched["high"]) if matched["high"] else low
    if low is None or high is None:
        raise _invalid(field, term)
    if matched["step"]:
        _check_step(field, term, matched["step"])
        high = high if matched["high"] else field.high
    if field is WEEKDAY and high == 0 < low:
        high = 7  # Sunday may also end a range: FRI-SUN
    step = int(matched["step"] or 1)
    if low > high:
        spelt = _wrap_around(field, low, high, step)
        if matched["low"] in field.names:
            spelt = re.sub("[0-9]+", lambda number: field.names[int(number[0]) - field.low], spelt)
        raise InvalidCron(f"{field.name} {term!r} runs backwards; to wrap around write {spelt}")
    if field is WEEKDAY:
        return ",".join(str(day % 7) for day in range(low, high + 1, step))
    if low == high:
        return str(low)
    return f"{low}-{high}" if step == 1 else f"{low}-{high}/{step}"


def _wrap_around(field: Field, low: int, high: int, step: int) -> str:
    """The values of a range that wraps around from the greatest value to the least."""
    size = field.hash_high - field.low + 1 if field is WEEKDAY else field.high - field.low + 1
    values = [(each - field.low) % size + field.low for each in range(low, high + size + 1, step)]
    if step > 1:
        return ",".join(map(str, values))
    wrap = values.index(field.low)
    parts = [part for part in (values[:wrap], values[wrap:]) if part]
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _check_step(field: Field, term: str, step: str | None) -> None:
    size = field.high - field.low + 1
    if step is not None and not 1 <= int(step) <= size:
        raise InvalidCron(
            f"{field.name} {term!r} has a step of {int(step)}; expected 1 to {size}, "
            "or write a schedule like 'every 90m' for longer intervals"
        )


def _invalid(field: Field, term: str) -> InvalidCron:
    names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    special = {
        DAY.name: ", L for the last day (W, the nearest working day, is not supported)",
        WEEKDAY.name: ", 1#2 for the second Monday, 5L for the last Friday",
    }.get(field.name, "")
    return InvalidCron(
        f"{field.name} {term!r} is not valid; expected {field.low}-{field.high}{names}, "
        f"ranges a-b, steps */n, lists a,b and H{special}"
    )
