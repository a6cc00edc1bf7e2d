"""Describes a cron expression in words.

Invariant: the words come from the same fields that the calendar matches, so they cannot disagree.
"""

from typing import Final

from wheelsched.schedule.cron.calendar import CronFields
from wheelsched.schedule.describe.lists import LONG, distance_of, joined, listed, ordinal, values_of
from wheelsched.schedule.describe.times import time_words

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
NTH: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}
_EVERY_DAY: Final = range(1, 32)


def cron_words(fields: CronFields) -> str:
    """A description such as `At 09:00 on Monday`."""
    return f"{time_words(fields)} {_day_words(fields)}".rstrip()


def _day_words(fields: CronFields) -> str:
    months = values_of(fields.months, range(1, 13))
    named = listed(months, lambda month: MONTHS[month - 1]) if len(months) < 12 else ""
    of_month, of_week = _days_of_month(fields), days_of_week(fields)
    month = named or "the month"
    in_month = f"in {named}" if named else ""
    of_or_in = f"of {month}" if fields.nth_weekdays else in_month
    if of_month and of_week:
        if fields.either_day:
            return f"on {of_month} of {month} or on {of_week} {of_or_in}".rstrip()
        return f"on {of_month} of {month}, but only on {of_week}"
    if fields.either_day or not (of_month or of_week):  # every day
        return in_month
    return f"on {of_month} of {month}" if of_month else f"on {of_week} {of_or_in}".rstrip()


def _days_of_month(fields: CronFields) -> str:
    days = values_of(fields.days, _EVERY_DAY)
    if len(days) == len(_EVERY_DAY):
        return ""
    last = ["the last day"] if fields.last_day else []
    if not days:
        return last[0]
    distance = distance_of(days)
    if len(days) >= LONG and distance is not None and distance > 1:
        every = f"every {ordinal(distance)} day from day {days[0]} to {days[-1]}"
        return joined([every, *last])
    return f"day{'s' if len(days) > 1 else ''} {listed(days, str, last)}"


def days_of_week(fields: CronFields) -> str:
    """`Monday through Friday`, `the last Friday`; empty if it is every day."""
    if fields.nth_weekdays:
        # Sorted by their position in the month. Cron counts weekdays from Sunday.
        found = sorted((nth % 7, (day - 1) % 7, nth) for day, nth in fields.nth_weekdays)
        return joined([f"the {NTH[nth]} {WEEKDAYS[weekday]}" for _, weekday, nth in found])
    weekdays = sorted((day - 1) % 7 for day in values_of(fields.weekdays, range(7)))
    return "" if len(weekdays) == len(WEEKDAYS) else listed(weekdays, lambda day: WEEKDAYS[day])
