"""Describes the times of day of a cron expression in words.

Invariant: the words come from the values that the calendar matches. Expressions with the same
times have the same description, and different times have different descriptions.
"""

from itertools import product
from typing import Final

from wheelsched.schedule.cron.calendar import CronFields
from wheelsched.schedule.describe.lists import LONG, distance_of, each_of, joined, listed, values_of

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
MAX_LISTED: Final = 6

Time = tuple[int, int, int]
"""Hour, minute and second."""


def time_words(fields: CronFields) -> str:
    """A description such as `At 09:00 and 17:00` or `Every 5 minutes from 09:00 to 17:55`."""
    seconds = values_of(fields.seconds, range(60))
    minutes = values_of(fields.minutes, range(60))
    hours = values_of(fields.hours, range(24))
    step_s = _step_s(seconds, minutes, hours)
    count = len(seconds) * len(minutes) * len(hours)
    if count < LONG or (step_s is None and count <= MAX_LISTED):
        return f"At {joined(clocks(*product(hours, minutes, seconds)))}"
    if step_s is not None:
        first = hours[0], minutes[0], seconds[0]
        last = hours[-1], minutes[-1], seconds[-1]
        return _even_words(step_s, first, last)
    if seconds == [0]:
        return _minute_words(minutes, hours)
    return _second_words(seconds, minutes, hours)


def _step_s(seconds: list[int], minutes: list[int], hours: list[int]) -> int | None:
    """The distance in seconds between evenly spaced times; None if they are not."""
    step_s = None
    continues = True  # into the next minute, hour or day at the same distance
    for values, unit_s, size in ((seconds, 1, 60), (minutes, _MINUTE_S, 60), (hours, _HOUR_S, 24)):
        distance = distance_of(values)
        if len(values) > 1 and step_s is None:
            if distance is None:
                return None
            step_s = distance * unit_s
            continues = values[0] + size - values[-1] == distance
            continue
        if step_s is not None:
            if len(values) > 1 and not (continues and distance == 1):
                return None
            continues = continues and len(values) == size
    return step_s


def _even_words(step_s: int, first: Time, last: Time) -> str:
    first_s, last_s = _seconds_of(first), _seconds_of(last)
    if first_s + _DAY_S - last_s == step_s <= _HOUR_S:  # all day
        _, minute, second = first
        if first_s == 0:
            return f"Every {_interval(step_s)}"
        if step_s == _MINUTE_S:
            return f"At {_count(second, 'second')} past every minute"
        if step_s == _HOUR_S:
            past = [_count(minute, "minute"), *([_count(second, "second")] if second else [])]
            return f"At {joined(past)} past every hour"
    return f"Every {_interval(step_s)} from {' to '.join(clocks(first, last))}"


def _minute_words(minutes: list[int], hours: list[int]) -> str:
    every = _every(minutes, "minute")
    of_hours = "every hour" if len(hours) == 24 else _the(hours, "hour")
    if every is None:
        return f"At {listed(minutes, str)} minute{'' if minutes == [1] else 's'} past {of_hours}"
    return f"{every} {'of' if ' from ' in every else 'during'} {of_hours}"


def _second_words(seconds: list[int], minutes: list[int], hours: list[int]) -> str:
    every = _every(seconds, "second")
    words = every or f"At {each_of(seconds, 'second', str)}"
    is_continuous = every is not None and " from " not in every
    if len(minutes) < 60:
        words += f" {'during' if is_continuous else 'of'} {_the(minutes, 'minute')}"
        words += " of every hour" if len(hours) == 24 else ""
    elif not is_continuous:
        words += " of every minute"
    if len(hours) < 24:
        words += f" {'of' if len(minutes) < 60 else 'during'} {_the(hours, 'hour')}"
    return words


def _every(values: list[int], unit: str) -> str | None:
    """`Every 5 minutes`, with its range unless that is the whole unit; None if it is uneven."""
    distance = distance_of(values)
    if distance is None or (len(values) < LONG and (values[0] or 60 % distance)):
        return None
    words = f"Every {unit if distance == 1 else f'{distance} {unit}s'}"
    if values[0] == 0 and values[-1] + distance == 60:
        return words
    if len(values) < LONG:
        return None
    return f"{words} from {unit} {values[0]} to {values[-1]}"


def _the(values: list[int], unit: str) -> str:
    """`the hours 09 and 17`, `hour 09`, or `every 2nd hour from 00 to 22`."""
    words = each_of(values, unit, (lambda hour: f"{hour:02}") if unit == "hour" else str)
    return f"the {words}" if words.startswith(f"{unit}s ") else words


def _interval(step_s: int) -> str:
    units = (("hour", _HOUR_S), ("minute", _MINUTE_S), ("second", 1))
    unit, unit_s = next((unit, unit_s) for unit, unit_s in units if step_s % unit_s == 0)
    amount = step_s // unit_s
    return unit if amount == 1 else f"{amount} {unit}s"


def _count(amount: int, unit: str) -> str:
    return f"{amount} {unit}{'' if amount == 1 else 's'}"


def clocks(*times: Time) -> list[str]:
    """Times of day, with seconds if any of them has seconds."""
    shows_seconds = any(second for _, _, second in times)
    return [
        f"{hour:02}:{minute:02}" + (f":{second:02}" if shows_seconds else "")
        for hour, minute, second in times
    ]


def _seconds_of(time: Time) -> int:
    hour, minute, second = time
    return hour * _HOUR_S + minute * _MINUTE_S + second
