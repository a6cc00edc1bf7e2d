"""The nominal interval: the shortest time between two due times, as the rule is written.

Invariant: it depends on the rule alone, never on a zone or on today (an RRULE without DTSTART
starts when it is written, which becomes part of the rule). What clock changes, bounds
and excluded dates do to the distance of two due times is for whoever looks at those two.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final, assert_never

from wheelsched.core import cron
from wheelsched.core.compile import next_wall_of
from wheelsched.core.cron_calendar import CronCalendar
from wheelsched.core.cron_terms import Choose
from wheelsched.core.duration import SECOND
from wheelsched.core.every import interval_us
from wheelsched.core.spec import Spec

_DAY_S: Final = 86_400
# Matches of an RRULE, and matching days of a cron expression, that are looked at: of most rules
# a year and more. Not all there are: registration has 50 ms, and the clamp of jitter is exact.
_LOOKED_AT: Final = 64


def shortest_interval_us(spec: Spec, choose: Choose) -> int | None:
    """The least distance of two due times; None for a schedule that has only one."""
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
    """Each distance in seconds that two neighbours can have: field by field, not one by one.

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
    return (later - earlier for earlier, later in pairwise(islice(values, _LOOKED_AT)))


def _microseconds(distances_s: Iterable[int]) -> int | None:
    shortest_s = min(distances_s, default=None)
    return None if shortest_s is None else shortest_s * SECOND
