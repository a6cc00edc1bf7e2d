"""Warns about cron expressions that other schedulers, or people, read differently.

Invariant: a warning says what the expression means here, what it means elsewhere or probably was
meant to mean, and how to write that. An unambiguous expression has no warning.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.calendar import CronFields
from wheelsched.schedule.cron.terms import WEEKDAY
from wheelsched.schedule.describe.cron import MONTHS, days_of_week
from wheelsched.schedule.describe.lists import listed, values_of
from wheelsched.schedule.spec import Spec

_EVERY_WEEKDAY: Final = 0x7F
_EVERY_DAY: Final = (1 << 32) - 2
_DAYS_IN_MONTH: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The number of a day of the week: neither a step nor the n of an n-th weekday.
_WEEKDAY_NUMBER: Final = re.compile(r"(?<![0-9#/])([0-7])(?![0-9])")
# A term that means the same to Quartz.
_OTHER_WEEKDAY: Final = re.compile(r"[*?H]|[A-Z]{3}")


def dialect_warnings(spec: Spec) -> tuple[str, ...]:
    """The warnings for the author of a schedule about its expression."""
    return _warnings(spec.expression) if spec.kind == "cron" else ()


# Computed for each job in a response; most expressions have no warning.
@lru_cache(maxsize=16_384)
def _warnings(text: str) -> tuple[str, ...]:
    chosen = cron.choices(cron.template(text), cron.worst_case)
    fields = cron.calendar(text, chosen).fields
    return (
        *_quartz_weekdays(text, fields),
        *_starred_step(text, fields),
        *_nth_weekday_as_days(fields),
        *_days_that_months_lack(fields),
    )


def _quartz_weekdays(text: str, fields: CronFields) -> Iterator[str]:
    *_, days, _, weekdays = text.split()
    numbers = _WEEKDAY_NUMBER.findall(weekdays)
    if "?" not in days or not numbers or "0" in numbers or _OTHER_WEEKDAY.search(weekdays):
        return
    if not _narrows_weekdays(fields):
        return
    elsewhere = replace(
        fields,
        weekdays=(fields.weekdays >> 1 | fields.weekdays << 6) & _EVERY_WEEKDAY,
        nth_weekdays=frozenset(((day - 1) % 7, nth) for day, nth in fields.nth_weekdays),
    )
    yield (
        f"day of week {weekdays} is {days_of_week(fields)} here, where Sunday is 0 or 7; in "
        f"Quartz, where '?' comes from, Sunday is 1 and it is {days_of_week(elsewhere)}: use "
        "names, e.g. MON"
    )


def _starred_step(text: str, fields: CronFields) -> Iterator[str]:
    *_, days, _, weekdays = text.split()
    if not (_narrows_days(fields) and _narrows_weekdays(fields)):
        return
    starred = [
        (field, f"{span}{field[1:]}")
        for field, span in ((days, "1-31"), (weekdays, "0-6"))
        if field.startswith("*/")
    ]
    if starred:
        yield (
            f"day of month and day of week must both match, because {starred[0][0]} begins with "
            "a star, as in Vixie cron; Kubernetes runs it when either matches: for that, "
            f"write {' and '.join(spelt for _, spelt in starred)}"
        )


def _nth_weekday_as_days(fields: CronFields) -> Iterator[str]:
    """`1-7 * MON`, which many write for the first Monday."""
    weekdays = values_of(fields.weekdays, range(7))
    days = values_of(fields.days, range(1, 32))
    is_week = len(days) == 7 and days[-1] - days[0] == 6 and days[0] % 7 == 1
    if not fields.either_day or not is_week or fields.last_day or not 0 < len(weekdays) < 7:
        return
    nth = days[0] // 7 + 1
    spelt = ",".join(f"{WEEKDAY.names[day]}#{nth}" for day in weekdays)
    yield (
        f"it runs on days {days[0]} through {days[-1]} of the month and on every "
        f"{days_of_week(fields)}, because either is enough; if both must match, write '*' as day "
        f"of month and {spelt} as day of week"
    )


def _days_that_months_lack(fields: CronFields) -> Iterator[str]:
    days = values_of(fields.days, range(1, 32))
    if fields.last_day or not days or _narrows_weekdays(fields):
        return
    months = [
        month
        for month in values_of(fields.months, range(1, 13))
        if _DAYS_IN_MONTH[month - 1] < days[0]
    ]
    if not months:
        return
    named = listed(months, lambda month: MONTHS[month - 1])
    leap = " except in leap years" if days[0] == 29 else ""
    has = "has" if len(months) == 1 else "have"
    yield (
        f"it does not run in {named}{leap}, which {has} no day {days[0]}; for the last day of "
        "each month, write L"
    )


def _narrows_days(fields: CronFields) -> bool:
    return fields.days != _EVERY_DAY


def _narrows_weekdays(fields: CronFields) -> bool:
    return bool(fields.nth_weekdays) or fields.weekdays & _EVERY_WEEKDAY != _EVERY_WEEKDAY
