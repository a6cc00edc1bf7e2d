"""A cron expression in words.

Invariant: the words about days and months are read off the fields that the calendar matches by,
so that they cannot say anything else than it does. cron-descriptor says the times of day, where
it is right; about days it says "or" for "and", and loses ordinals and `L`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from cron_descriptor import Options, get_description

from wheelsched.core import cron
from wheelsched.core.cron_calendar import CronFields

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NTH: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}
_EVERY_DAY: Final = range(1, 32)


def cron_words(expression: str) -> str:
    """The words of a filled expression, such as `At 09:00, only on Monday`."""
    fields = cron.calendar(expression).fields
    parts = [_time_words(expression.split()[:-3]), _day_words(fields)]
    months = _values(fields.months, range(1, 13))
    if len(months) < len(MONTHS):
        parts.append(f"only in {_listed(months, lambda month: MONTHS[month - 1])}")
    return ", ".join(part for part in parts if part)


def _time_words(times: list[str]) -> str:
    options = Options()
    options.use_24hour_time_format = True
    options.locale_code = "en_US"  # not the host's: the same words for every user of a service
    sizes = (60, 60, 24)[-len(times) :]
    spelt = " ".join(map(_spelt_out, times, sizes))
    return str(get_description(f"{spelt} * * *", options))


def _spelt_out(field: str, size: int) -> str:
    """A step that does not divide its field as the values it has: */40 is not every 40 minutes."""
    star, _, step = field.partition("/")
    if star != "*" or not step or size % int(step) == 0:
        return field
    return ",".join(map(str, range(0, size, int(step))))


def _day_words(fields: CronFields) -> str:
    of_month, of_week = _days_of_month(fields), _days_of_week(fields)
    if of_month and of_week:
        return f"{of_month}, {'or' if fields.either_day else 'but only'} {of_week}"
    if fields.either_day:  # and one of the two is every day
        return ""
    return of_month or (of_week if fields.nth_weekdays else of_week and f"only {of_week}")


def _days_of_month(fields: CronFields) -> str:
    days = _values(fields.days, _EVERY_DAY)
    if len(days) == len(_EVERY_DAY):
        return ""
    last = ["the last day"] if fields.last_day else []
    if not days:
        return f"on {last[0]} of the month"
    steps = {later - earlier for earlier, later in pairwise(days)}
    if len(days) > 3 and len(steps) == 1 and steps != {1}:
        every = f"every {_ordinal(*steps)} day from day {days[0]} to {days[-1]}"
        return f"on {_joined([every, *last])} of the month"
    plural = "s" if len(days) > 1 else ""
    return f"on day{plural} {_listed(days, str, last)} of the month"


def _days_of_week(fields: CronFields) -> str:
    if fields.nth_weekdays:
        # In the order of the month; weekdays of the calendar count from Sunday.
        found = sorted((nth % 7, (day - 1) % 7, nth) for day, nth in fields.nth_weekdays)
        nths = [f"the {_NTH[nth]} {WEEKDAYS[weekday]}" for _, weekday, nth in found]
        return f"on {_joined(nths)} of the month"
    weekdays = sorted((day - 1) % 7 for day in _values(fields.weekdays, range(7)))
    if len(weekdays) == len(WEEKDAYS):
        return ""
    return f"on {_listed(weekdays, lambda day: WEEKDAYS[day])}"


def _values(mask: int, allowed: range) -> list[int]:
    return [value for value in allowed if mask >> value & 1]


def _listed(values: Sequence[int], name: Callable[[int], str], further: Sequence[str] = ()) -> str:
    """Values by name, three and more in a row as `first through last`."""
    rows: list[list[int]] = []
    for value in values:
        if rows and rows[-1][-1] == value - 1:
            rows[-1].append(value)
        else:
            rows.append([value])
    texts: list[str] = []
    for row in rows:
        if len(row) > 2:
            texts.append(f"{name(row[0])} through {name(row[-1])}")
        else:
            texts += map(name, row)
    return _joined([*texts, *further])


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _ordinal(number: int) -> str:
    return f"{number}{'nd' if number == 2 else 'rd' if number == 3 else 'th'}"
