"""The nominal interval: the shortest time between two due times, according to the rule.

Invariant: it depends only on the rule, never on a zone or on the current time. (The start of an
RRULE without DTSTART becomes part of the rule at registration.) It ignores clock changes, bounds
and excluded dates, which can change the distance between two particular due times.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final, assert_never

from wheelsched.schedule.compile import next_wall_of
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.calendar import CronCalendar
from wheelsched.schedule.cron.terms import Choose
from wheelsched.schedule.every import interval_us
from wheelsched.schedule.spec import Spec
from wheelsched.values.duration import SECOND

_DAY_S: Final = 86_400
# How many matches of an RRULE, or matching days of a cron expression, to compare: more than a year
# for most rules. Registration has a budget of 50 ms, and jitter is clamped exactly at run time.
_COMPARED: Final = 64


def shortest_interval_us(spec: Spec, choose: Choose) -> int | None:
    """The shortest interval between two due times; None for a schedule with only one."""
    match spec.kind:
        case "cron":
            expression = cron.fill(cron.template(spec.expression), choose)
            return _microseconds(_cron_intervals(cron.calendar(expression)))
        case "rrule":
            return _microseconds(_distances(_walls(spec, choose)))
        case "every":
            return interval_us(spec.expression)
        case "at":
            return None
        case _:
            assert_never(spec.kind)


def _cron_intervals(calendar: CronCalendar) -> Iterator[int]:
    """Each possible distance between two neighbouring matches, in seconds, derived from the fields.

    Two neighbours are in one minute; or the last second of one minute and the first of another;
    or the last minute of one hour and the first of another; or in two days.
    """
    fields = calendar.fields
    span_s = 0  # from the first match of a minute, an hour, a day to its last
    for mask, unit_s in ((fields.seconds, 1), (fields.minutes, 60), (fields.hours, 3600)):
        values = [value for value in range(mask.bit_length()) if mask >> value & 1]
        yield from (distance * unit_s - span_s for distance in _distances(values))
        span_s += (values[-1] - values[0]) * unit_s
    yield from (distance * _DAY_S - span_s for distance in _distances(calendar.days()))


def _walls(spec: Spec, choose: Choose) -> Iterator[int]:
    next_wall = next_wall_of(spec, choose)
    wall_s = next_wall(-_DAY_S)
    while wall_s is not None:
        yield wall_s
        wall_s = next_wall(wall_s)


def _distances(values: Iterable[int]) -> Iterator[int]:
    return (later - earlier for earlier, later in pairwise(islice(values, _COMPARED)))


def _microseconds(distances_s: Iterable[int]) -> int | None:
    shortest_s = min(distances_s, default=None)
    return None if shortest_s is None else shortest_s * SECOND
