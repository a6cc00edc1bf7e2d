"""Describes an RRULE in words.

Invariant: the description names every part of the rule, its start, its end and its exclusions.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Final

from wheelsched.schedule.describe.cron import MONTHS, NTH, WEEKDAYS
from wheelsched.schedule.describe.lists import each_of, joined, listed, ordinal
from wheelsched.schedule.describe.times import MAX_LISTED, clocks
from wheelsched.schedule.rrule.rule import Rule, Stamp, Weekday

_UNITS: Final = {
    "YEARLY": "year",
    "MONTHLY": "month",
    "WEEKLY": "week",
    "DAILY": "day",
    "HOURLY": "hour",
    "MINUTELY": "minute",
    "SECONDLY": "second",
}
_WITHIN_A_DAY: Final = ("HOURLY", "MINUTELY", "SECONDLY")


def rule_words(rule: Rule) -> list[str]:
    """Parts of a sentence, such as `Every 2 weeks on Monday` and `10 times`."""
    unit = _UNITS[rule.frequency]
    every = f"Every {unit}" if rule.interval == 1 else f"Every {rule.interval} {unit}s"
    parts = [" ".join([every, *_days(rule), *_times(rule)])]
    if rule.positions:
        parts.append(f"only {joined([f'the {_nth(each)}' for each in rule.positions])} of these")
    parts.append(f"from {_stamp(rule.start)} on")
    if rule.count is not None:
        parts.append("once" if rule.count == 1 else f"{rule.count} times")
    if rule.until is not None:
        parts.append(f"until {_stamp(rule.until)}")
    if rule.excluded:
        parts.append(f"except at {joined([_stamp(stamp) for stamp in rule.excluded])}")
    return parts


def _days(rule: Rule) -> Iterator[str]:
    if rule.weekdays:
        yield f"on {joined([_weekday(day) for day in rule.weekdays])}"
    if rule.month_days:
        yield f"on {_counted(rule.month_days, 'day')} of the month"
    if rule.year_days:
        yield f"on {_counted(rule.year_days, 'day')} of the year"
    if rule.week_numbers:
        yield f"in {_counted(rule.week_numbers, 'week')} of the year"
    if rule.months:
        yield f"in {listed(sorted(rule.months), lambda month: MONTHS[month - 1])}"


def _times(rule: Rule) -> Iterator[str]:
    times = list(product(sorted(rule.hours), sorted(rule.minutes), sorted(rule.seconds)))
    if 0 < len(times) <= MAX_LISTED and rule.frequency not in _WITHIN_A_DAY:
        yield f"at {joined(clocks(*times))}"
        return
    fields: tuple[tuple[str, Sequence[int], Callable[[int], str]], ...] = (
        ("second", rule.seconds, str),
        ("minute", rule.minutes, str),
        ("hour", rule.hours, lambda hour: f"{hour:02}"),
    )
    named = [each_of(sorted(values), unit, name) for unit, values, name in fields if values]
    if named:
        yield f"at {' of '.join(named)}"


def _counted(numbers: Sequence[int], unit: str) -> str:
    """`days 1 and 15`, `the last day`."""
    from_start = sorted(number for number in numbers if number > 0)
    from_end = [f"the {_nth(number)} {unit}" for number in sorted(numbers) if number < 0]
    return joined([*([each_of(from_start, unit, str)] if from_start else []), *from_end])


def _weekday(day: Weekday) -> str:
    name = WEEKDAYS[day.weekday]
    return name if day.nth is None else f"the {_nth(day.nth)} {name}"


def _nth(number: int) -> str:
    """`first`, `20th`, `last`, `second to last`."""
    if number < -1:
        return f"{_nth(-number)} to last"
    return NTH.get(number) or ordinal(number)


def _stamp(stamp: Stamp) -> str:
    return f"{stamp.moment.isoformat()}{'Z' if stamp.is_utc else ''}"
