"""What an RRULE means, by brute force: each time of each day is looked at.

Invariant: this file shares no code and no idea with wheelsched. It tries every day and every
time of day against the rule, asks zoneinfo which instants that is, and cuts the list.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from tests.property.oracle import EPOCH, instants_of

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
    """A rule of daily frequency or below, and what bounds it."""

    start: Stamp
    frequency: str
    interval: int = 1
    weekdays: list[str] = field(default_factory=list)
    hours: list[int] = field(default_factory=list)
    minutes: list[int] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)
    count: int | None = None
    until: Stamp | None = None
    excluded: list[Stamp] = field(default_factory=list)

    @property
    def text(self) -> str:
        parts = [f"FREQ={self.frequency}", f"INTERVAL={self.interval}"]
        for name, values in (
            ("BYDAY", self.weekdays),
            ("BYHOUR", self.hours),
            ("BYMINUTE", self.minutes),
            ("BYSECOND", self.seconds),
        ):
            if values:
                parts.append(f"{name}={','.join(map(str, values))}")
        if self.count is not None:
            parts.append(f"COUNT={self.count}")
        if self.until is not None:
            parts.append(f"UNTIL={self.until.text}")
        lines = [f"DTSTART:{self.start.text}", f"RRULE:{';'.join(parts)}"]
        return "\n".join(lines + [f"EXDATE:{stamp.text}" for stamp in self.excluded])

    @property
    def is_elapsed(self) -> bool:
        if self.frequency not in SLOTS or self.hours:
            return False
        return self.interval * SLOTS[self.frequency] != 86_400

    def walls(self, start: datetime, days: int) -> Iterator[datetime]:
        """Every match of the wall clock from the day before `start` on."""
        is_hourly = self.frequency == "HOURLY"
        all_minutes = self.frequency in ("MINUTELY", "SECONDLY")
        all_seconds = self.frequency == "SECONDLY"
        hours = self.hours or (range(24) if is_hourly or all_minutes else [start.hour])
        minutes = self.minutes or (range(60) if all_minutes else [start.minute])
        seconds = self.seconds or (range(60) if all_seconds else [start.second])
        for offset in range(-1, days):
            day = start.date() + timedelta(days=offset)
            if self.weekdays and WEEKDAYS[day.weekday()] not in self.weekdays:
                continue
            if self.frequency == "DAILY" and offset % self.interval:
                continue
            for hour, minute, second in product(hours, minutes, seconds):
                wall = datetime.combine(day, time(hour, minute, second))
                if self._is_in_step(wall, start):
                    yield wall

    def _is_in_step(self, wall: datetime, start: datetime) -> bool:
        if self.frequency not in SLOTS or self.interval == 1:
            return True
        slot = SLOTS[self.frequency]
        midnight = datetime.combine(start.date(), time.min)
        index = (wall - midnight) // timedelta(seconds=slot)
        return (index - (start - midnight) // timedelta(seconds=slot)) % self.interval == 0


def due(rule: Recurrence, key: str, gap: str, overlap: str, days: int) -> list[int]:
    """The UTC seconds at which a rule is due, in the first `days` from its start on."""
    zone = ZoneInfo(key)
    if rule.is_elapsed:
        gap, overlap = "skip", "both"
    start = rule.start.moment
    if rule.start.kind == "utc":
        start = start.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None, fold=0)
    found = set()
    for wall in rule.walls(start, days):
        found |= set(meant(wall, zone, gap, overlap))
    first_s = instant(rule.start, zone, -1)
    kept = sorted(utc_s for utc_s in found if utc_s >= first_s)
    if rule.count is not None:
        kept = kept[: rule.count]
    if rule.until is not None:
        kept = [utc_s for utc_s in kept if not is_later(utc_s, rule.until, zone)]
    return [
        utc_s
        for utc_s in kept
        if not any(is_named(utc_s, stamp, zone, gap, overlap) for stamp in rule.excluded)
    ]


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


def is_named(utc_s: int, stamp: Stamp, zone: ZoneInfo, gap: str, overlap: str) -> bool:
    if stamp.kind == "date":
        return local_date(utc_s, zone) == stamp.moment.date()
    if stamp.kind == "utc":
        return utc_s == instant(stamp, zone, 1)
    return utc_s in meant(stamp.moment, zone, gap, overlap)


def local_date(utc_s: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(utc_s, zone).date()
