"""What an RRULE means, by brute force: each time of each day is looked at.

Invariant: this file shares no code and no idea with wheelsched. It tries every day and every
time of day against the rule, asks zoneinfo which instants that is, and cuts the list.

The days follow RFC 5545, section 3.3.10. Whether its table says that a part expands or limits, a
day is in when every part that is written admits it, and BYDAY admits it when any of its days
does. A frequency of a day or more takes what is not written from DTSTART.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import groupby, product
from zoneinfo import ZoneInfo

from tests.property.oracle import EPOCH, HOUR, instants_of, runs_through

MINUTE = timedelta(minutes=1)
SLOTS = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


@dataclass(frozen=True)
class Stamp:
    """A time of UTC, of the wall clock, or a date."""

    moment: datetime
    kind: str  # "utc", "local" or "date"

    @property
    def text(self) -> str:
        if self.kind == "date":
            return f"{self.moment:%Y%m%d}"
        return f"{self.moment:%Y%m%dT%H%M%S}" + ("Z" if self.kind == "utc" else "")


@dataclass
class Recurrence:
    """A rule, and what bounds it."""

    start: Stamp
    frequency: str
    interval: int = 1
    week_start: str = "MO"
    months: list[int] = field(default_factory=list)
    week_numbers: list[int] = field(default_factory=list)
    year_days: list[int] = field(default_factory=list)
    month_days: list[int] = field(default_factory=list)
    weekdays: list[str] = field(default_factory=list)
    hours: list[int] = field(default_factory=list)
    minutes: list[int] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    count: int | None = None
    until: Stamp | None = None
    excluded: list[Stamp] = field(default_factory=list)

    @property
    def text(self) -> str:
        parts = [f"FREQ={self.frequency}", f"INTERVAL={self.interval}", f"WKST={self.week_start}"]
        for name, values in (
            ("BYMONTH", self.months),
            ("BYWEEKNO", self.week_numbers),
            ("BYYEARDAY", self.year_days),
            ("BYMONTHDAY", self.month_days),
            ("BYDAY", self.weekdays),
            ("BYHOUR", self.hours),
            ("BYMINUTE", self.minutes),
            ("BYSECOND", self.seconds),
            ("BYSETPOS", self.positions),
        ):
            if values:
                parts.append(f"{name}={','.join(map(str, values))}")
        if self.count is not None:
            parts.append(f"COUNT={self.count}")
        if self.until is not None:
            parts.append(f"UNTIL={self.until.text}")
        lines = [f"DTSTART:{self.start.text}", f"RRULE:{';'.join(parts)}"]
        return "\n".join(lines + [f"EXDATE:{stamp.text}" for stamp in self.excluded])

    def walls(self, start: datetime, days: int) -> Iterator[datetime]:
        """Every match of the wall clock from the day before `start` on."""
        is_hourly = self.frequency == "HOURLY"
        all_minutes = self.frequency in ("MINUTELY", "SECONDLY")
        all_seconds = self.frequency == "SECONDLY"
        hours = self.hours or (range(24) if is_hourly or all_minutes else [start.hour])
        minutes = self.minutes or (range(60) if all_minutes else [start.minute])
        seconds = self.seconds or (range(60) if all_seconds else [start.second])
        for day in self.days(start.date(), days):
            for hour, minute, second in product(hours, minutes, seconds):
                wall = datetime.combine(day, time(hour, minute, second))
                if self._is_in_step(wall, start):
                    yield wall

    def days(self, start: date, days: int) -> Iterator[date]:
        """Every day of the rule from the day before `start` on."""
        first, end = start - timedelta(days=1), start + timedelta(days=days)
        # Whole years, because BYSETPOS counts in whole periods.
        since, until = date(first.year, 1, 1), date(end.year + 1, 1, 1)
        if not self.positions:
            since, until = first, end
        tried = (since + timedelta(days=offset) for offset in range((until - since).days))
        found: Iterator[date] = (
            day for day in tried if self._is_day_in_step(day, start) and self._has(day, start)
        )
        if self.positions:
            found = self._at_positions(found)
        return (day for day in found if first <= day < end)

    def _at_positions(self, days: Iterator[date]) -> Iterator[date]:
        width = {"YEARLY": 1, "MONTHLY": 2}[self.frequency]
        for _, group in groupby(days, key=lambda day: (day.year, day.month)[:width]):
            members = list(group)
            for index, day in enumerate(members):
                if index + 1 in self.positions or index - len(members) in self.positions:
                    yield day

    def _is_day_in_step(self, day: date, start: date) -> bool:
        week_start = WEEKDAYS.index(self.week_start)
        apart = {
            "YEARLY": day.year - start.year,
            "MONTHLY": 12 * (day.year - start.year) + day.month - start.month,
            "WEEKLY": (week_of(day, week_start) - week_of(start, week_start)).days // 7,
            "DAILY": (day - start).days,
        }
        return apart.get(self.frequency, 0) % self.interval == 0

    def _has(self, day: date, start: date) -> bool:
        """Whether every part admits a day."""
        named = self.week_numbers or self.year_days or self.month_days or self.weekdays
        months, month_days, weekdays = self.months, self.month_days, self.weekdays
        if self.frequency == "WEEKLY" and not named:
            weekdays = [WEEKDAYS[start.weekday()]]
        elif self.frequency == "MONTHLY" and not named:
            month_days = [start.day]
        elif self.frequency == "YEARLY" and not named:
            months, month_days = months or [start.month], [start.day]
        elif self.week_numbers and not (self.year_days or month_days or weekdays):
            weekdays = [WEEKDAYS[start.weekday()]]
        in_year = day.timetuple().tm_yday, (date(day.year, 12, 31) - day).days + 1
        in_month = day.day, (next_month(day) - day).days
        return (
            (not months or day.month in months)
            and (not self.week_numbers or self._has_week(day))
            and (not self.year_days or is_among(in_year, self.year_days))
            and (not month_days or is_among(in_month, month_days))
            and (not weekdays or any(self._is_weekday(day, each) for each in weekdays))
        )

    def _has_week(self, day: date) -> bool:
        """Whether BYWEEKNO has the week of a day: it is of the year that has its fourth day."""
        fourth = week_of(day, WEEKDAYS.index(self.week_start)) + timedelta(days=3)
        before = (fourth - date(fourth.year, 1, 1)).days // 7
        behind = (date(fourth.year, 12, 31) - fourth).days // 7
        return is_among((before + 1, behind + 1), self.week_numbers)

    def _is_weekday(self, day: date, written: str) -> bool:
        if WEEKDAYS[day.weekday()] != written[-2:]:
            return False
        if len(written) == 2:
            return True
        is_monthly = self.frequency == "MONTHLY" or self.months
        first = day.replace(day=1) if is_monthly else date(day.year, 1, 1)
        after = next_month(day) if is_monthly else date(day.year + 1, 1, 1)
        before, behind = (day - first).days // 7, (after - day).days - 1
        return is_among((before + 1, behind // 7 + 1), [int(written[:-2])])

    def _is_in_step(self, wall: datetime, start: datetime) -> bool:
        if self.frequency not in SLOTS or self.interval == 1:
            return True
        slot = SLOTS[self.frequency]
        midnight = datetime.combine(start.date(), time.min)
        index = (wall - midnight) // timedelta(seconds=slot)
        return (index - (start - midnight) // timedelta(seconds=slot)) % self.interval == 0


def week_of(day: date, week_start: int) -> date:
    """The first day of the week of a day."""
    while day.weekday() != week_start:
        day -= timedelta(days=1)
    return day


def next_month(day: date) -> date:
    """The first day of the month after that of a day."""
    return (day.replace(day=1) + timedelta(days=31)).replace(day=1)


def is_among(place: tuple[int, int], numbers: list[int]) -> bool:
    """Whether a place, counted from the front and from the back, has one of the numbers."""
    return place[0] in numbers or -place[1] in numbers


def due(rule: Recurrence, key: str, gap: str, overlap: str, days: int) -> list[int]:
    """The UTC seconds at which a rule is due, in the first `days` from its start on."""
    zone = ZoneInfo(key)
    start = rule.start.moment
    if rule.start.kind == "utc":
        start = start.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None, fold=0)
    walls = sorted(rule.walls(start, days + 1))

    def instants(wall: datetime) -> list[int]:
        if through(wall, zone, walls):
            return instants_of(wall, zone)
        return meant(wall, zone, gap, overlap)

    found = {utc_s for wall in rule.walls(start, days) for utc_s in instants(wall)}
    first_s = instant(rule.start, zone, -1)
    kept = sorted(utc_s for utc_s in found if utc_s >= first_s)
    if rule.count is not None:
        kept = kept[: rule.count]
    if rule.until is not None:
        kept = [utc_s for utc_s in kept if not is_later(utc_s, rule.until, zone)]
    return [
        utc_s
        for utc_s in kept
        if not any(is_named(utc_s, stamp, zone, instants) for stamp in rule.excluded)
    ]


def through(wall: datetime, zone: ZoneInfo, walls: list[datetime]) -> bool:
    """Whether a time is skipped or repeated by a change that the rule runs through."""
    affected = affected_by_change(wall.replace(second=0), zone)
    if affected is None:
        return False
    start, end = affected
    near = walls[bisect_left(walls, start - HOUR) : bisect_right(walls, end + 2 * HOUR)]
    return runs_through(near, start, end)


@cache
def affected_by_change(minute: datetime, zone: ZoneInfo) -> tuple[datetime, datetime] | None:
    """The times that the same change skips or repeats; None where there is none."""
    times = len(instants_of(minute, zone))
    if times == 1:
        return None
    start = end = minute
    while len(instants_of(start - MINUTE, zone)) == times:
        start -= MINUTE
    while len(instants_of(end, zone)) == times:
        end += MINUTE
    return start, end


def meant(wall: datetime, zone: ZoneInfo, gap: str, overlap: str) -> list[int]:
    """The UTC seconds that a time of the wall clock is due at."""
    instants = instants_of(wall, zone)
    if not instants:
        return [end_of_gap(wall, zone)] if gap == "shift" else []
    return {"first": instants[:1], "last": instants[-1:], "both": instants}[overlap]


def end_of_gap(wall: datetime, zone: ZoneInfo) -> int:
    wall = wall.replace(second=0)
    while not instants_of(wall, zone):
        wall += timedelta(minutes=1)
    return instants_of(wall, zone)[0]


def instant(stamp: Stamp, zone: ZoneInfo, which: int) -> int:
    """The UTC second of a stamp; of a local one the first (-1) or the last (1) that shows it."""
    if stamp.kind == "utc":
        return (stamp.moment.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    return meant(stamp.moment, zone, "shift", "first" if which < 0 else "last")[0]


def is_later(utc_s: int, stamp: Stamp, zone: ZoneInfo) -> bool:
    if stamp.kind == "date":
        return local_date(utc_s, zone) > stamp.moment.date()
    return utc_s > instant(stamp, zone, 1)


def is_named(
    utc_s: int, stamp: Stamp, zone: ZoneInfo, instants: Callable[[datetime], list[int]]
) -> bool:
    if stamp.kind == "date":
        return local_date(utc_s, zone) == stamp.moment.date()
    if stamp.kind == "utc":
        return utc_s == instant(stamp, zone, 1)
    return utc_s in instants(stamp.moment)


def local_date(utc_s: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(utc_s, zone).date()
