"""What cron means, by brute force: every minute or second of a window is looked at.

Invariant: this file shares no code and no idea with wheelsched. It reads an expression into
sets, walks the wall clock one step at a time, and asks zoneinfo what each time is in UTC.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Cron:
    """An expression as sets of numbers."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        if len(fields) == 5:
            fields.insert(0, "0")
        self.seconds = numbers(fields[0], 0, 59)
        self.minutes = numbers(fields[1], 0, 59)
        self.hours = numbers(fields[2], 0, 23)
        self.months = numbers(fields[4], 1, 12, MONTHS, first_name=1)
        self.day_field, self.weekday_field = fields[3], fields[5]

    def matches_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = self._by_day(day), self._by_weekday(day)
        if self.day_field[0] in "*?" or self.weekday_field[0] in "*?":
            return by_day and by_weekday
        return by_day or by_weekday

    def _by_day(self, day: date) -> bool:
        for term in self.day_field.split(","):
            if term == "L":
                if (day + timedelta(days=1)).day == 1:
                    return True
            elif day.day in numbers(term, 1, 31):
                return True
        return False

    def _by_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        for term in self.weekday_field.split(","):
            if "#" in term:
                wanted, nth = term.split("#")
                if number(wanted, WEEKDAYS, 0) % 7 == weekday and (day.day + 6) // 7 == int(nth):
                    return True
            elif term.endswith("L"):
                in_next_month = (day + timedelta(days=7)).month != day.month
                if number(term[:-1], WEEKDAYS, 0) % 7 == weekday and in_next_month:
                    return True
            elif weekday in {value % 7 for value in numbers(term, 0, 7, WEEKDAYS)}:
                return True
        return False


def number(text: str, names: list[str], first_name: int) -> int:
    return names.index(text) + first_name if text in names else int(text)


def numbers(
    field: str, low: int, high: int, names: list[str] | None = None, first_name: int = 0
) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        if span in ("*", "?"):
            # A week of stars has seven days, although both 0 and 7 are Sunday.
            first, last = low, 6 if names is WEEKDAYS else high
        elif "-" in span:
            first, last = (number(end, names or [], first_name) for end in span.split("-"))
        else:
            first = number(span, names or [], first_name)
            last = high if step else first
        found |= set(range(first, last + 1, int(step or 1)))
    return found


@dataclass(frozen=True)
class Change:
    """A zone's change of offset: the first second of the new one."""

    zone: str
    utc_s: int


@cache
def changes_of_2020s() -> dict[str, list[Change]]:
    """Every zone that changed its offset in 2020-2030, with each change."""
    start = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(2031, 1, 1, tzinfo=UTC).timestamp())
    found = {}
    for key in sorted(available_timezones()):
        zone = ZoneInfo(key)
        five_days = 5 * 86_400
        changes = [
            Change(key, _first_second_after(zone, low, low + five_days))
            for low in range(start, end, five_days)
            if _offset_s(zone, low) != _offset_s(zone, low + five_days)
        ]
        if changes:
            found[key] = changes
    return found


def change_of(zone: str, day: date) -> Change:
    """The change of a zone within a day before or after a date."""
    middle = (datetime(day.year, day.month, day.day, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    return Change(zone, _first_second_after(ZoneInfo(zone), middle - 86_400, middle + 86_400))


def _first_second_after(zone: ZoneInfo, low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_s(zone, middle) == _offset_s(zone, low):
            low = middle
        else:
            high = middle
    return high


def _offset_s(zone: ZoneInfo, utc_s: int) -> int:
    offset = datetime.fromtimestamp(utc_s, zone).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


class Window:
    """The time around a change, each step of it resolved once and for all expressions."""

    def __init__(self, change: Change, *, step_s: int, reach_s: int) -> None:
        zone = ZoneInfo(change.zone)
        self.first_s = change.utc_s - reach_s
        self.last_s = change.utc_s + reach_s
        # As shown: what does the wall clock show at each instant?
        self.shown = [
            (utc_s, datetime.fromtimestamp(utc_s, zone).replace(tzinfo=None))
            for utc_s in range(self.first_s, self.last_s + 1, step_s)
        ]
        # By the rules: which instants is each time of the wall clock? A change moves it by at
        # most its size.
        wider = abs(_offset_s(zone, change.utc_s) - _offset_s(zone, change.utc_s - 1))
        local = datetime.fromtimestamp(self.first_s - wider, zone).replace(tzinfo=None, fold=0)
        end = datetime.fromtimestamp(self.last_s + wider, zone).replace(tzinfo=None)
        step = timedelta(seconds=step_s)
        # What the change skips or repeats, and all that tells whether a schedule runs through it.
        before = datetime.fromtimestamp(change.utc_s - 1, zone).replace(tzinfo=None, fold=0)
        after = datetime.fromtimestamp(change.utc_s, zone).replace(tzinfo=None, fold=0)
        self.affected = sorted([before + timedelta(seconds=1), after])
        around = int((self.affected[1] - self.affected[0] + 3 * HOUR) / step)
        self.around = [self.affected[0] - HOUR + step * index for index in range(around + 1)]
        self.meant: list[tuple[datetime, list[int], int | None]] = []
        gap: list[int] = []
        while local <= end:
            instants = instants_of(local, zone)
            if instants:
                for index in gap:
                    self.meant[index] = (self.meant[index][0], [], instants[0])
                gap.clear()
            else:
                gap.append(len(self.meant))
            self.meant.append((local, instants, None))
            local += step

    def due(self, cron: Cron, gap: str, overlap: str) -> list[int]:
        """The UTC seconds of this window at which an expression is due."""
        days: dict[date, bool] = {}
        around = [local for local in self.around if matches(cron, local, days)]
        if runs_through(around, *self.affected):
            found = self._as_shown(cron)
        else:
            found = self._by_the_rules(cron, gap, overlap)
        return sorted({utc_s for utc_s in found if self.first_s <= utc_s <= self.last_s})

    def _as_shown(self, cron: Cron) -> Iterator[int]:
        days: dict[date, bool] = {}
        for utc_s, local in self.shown:
            if matches(cron, local, days):
                yield utc_s

    def _by_the_rules(self, cron: Cron, gap: str, overlap: str) -> Iterator[int]:
        days: dict[date, bool] = {}
        for local, instants, gap_end in self.meant:
            if not matches(cron, local, days):
                continue
            if gap_end is not None:
                if gap == "shift":
                    yield gap_end
            elif overlap == "both":
                yield from instants
            elif instants:
                yield instants[0] if overlap == "first" else instants[-1]


def runs_through(walls: list[datetime], start: datetime, end: datetime) -> bool:
    """Whether three times in a row, an hour apart at most, reach from [start, end) past its end.

    `walls` are the times of the wall clock from an hour before to two hours after, in order.
    """
    inside = [index for index, wall in enumerate(walls) if start <= wall < end]
    if not inside or inside[-1] + 1 == len(walls):
        return False
    last = inside[-1]
    is_near = [later - earlier <= HOUR for earlier, later in pairwise(walls)]
    return is_near[last] and any(is_near[max(last - 1, 0) : last] + is_near[last + 1 : last + 2])


def matches(cron: Cron, local: datetime, days: dict[date, bool]) -> bool:
    if (
        local.minute not in cron.minutes
        or local.hour not in cron.hours
        or local.second not in cron.seconds
    ):
        return False
    day = local.date()
    if day not in days:
        days[day] = cron.matches_day(day)
    return days[day]


def instants_of(local: datetime, zone: ZoneInfo) -> list[int]:
    """The UTC seconds at which a zone's clocks show a time: none, one or two."""
    found = set()
    for fold in (0, 1):
        instant = local.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None, fold=0) == local:
            found.add((instant - EPOCH) // timedelta(seconds=1))
    return sorted(found)
