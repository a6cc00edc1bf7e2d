"""A schedule in words, for people who check that it says what they meant.

Invariant: the words name everything that decides about due times: the rule, start, end and
excluded dates. What clock changes do to it is for `explain`.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import assert_never
from zoneinfo import ZoneInfo

from wheelsched.core import cron, rrule
from wheelsched.core.cron_terms import Choose
from wheelsched.core.cron_words import WEEKDAYS, cron_words
from wheelsched.core.duration import SECOND
from wheelsched.core.rrule import Rule, Stamp, Weekday
from wheelsched.core.spec import Spec

_UNITS = {
    "YEARLY": "year",
    "MONTHLY": "month",
    "WEEKLY": "week",
    "DAILY": "day",
    "HOURLY": "hour",
    "MINUTELY": "minute",
    "SECONDLY": "second",
}


def words(spec: Spec, choose: Choose) -> str:
    """One sentence without its full stop, such as `At 09:00, only on Monday`."""
    # A rule that begins at the start says so itself, and once is enough.
    return ", ".join(dict.fromkeys([*_kind_words(spec, choose), *_bound_words(spec)]))


def _kind_words(spec: Spec, choose: Choose) -> list[str]:
    match spec.kind:
        case "cron":
            return [cron_words(cron.fill(cron.template(spec.expression), choose))]
        case "at":
            where = "" if spec.expression.endswith("Z") else f" in {spec.timezone}"
            return [f"Once, at {spec.expression}{where}"]
        case "every":
            return [f"Every {spec.expression} of elapsed time"]
        case "rrule":
            return _rule_words(rrule.read(spec.expression))
        case _:
            assert_never(spec.kind)


def _bound_words(spec: Spec) -> Iterator[str]:
    if spec.start_us is not None:
        yield f"from {_local(spec.start_us, spec.timezone)} on"
    if spec.end_us is not None:
        yield f"until {_local(spec.end_us, spec.timezone)}"
    if spec.exclude:
        yield f"except on {', '.join(days.replace('/', ' to ') for days in spec.exclude)}"


def _local(instant_us: int, timezone: str) -> str:
    moment = datetime.fromtimestamp(instant_us // SECOND, ZoneInfo(timezone))
    return moment.replace(tzinfo=None).isoformat()


def _rule_words(rule: Rule) -> list[str]:
    unit = _UNITS[rule.frequency]
    parts = [f"Every {unit}" if rule.interval == 1 else f"Every {rule.interval} {unit}s"]
    parts += [
        f"{preposition} {', '.join(map(str, values))}"
        for preposition, values in (
            ("in month", rule.months),
            ("in week", rule.week_numbers),
            ("on day of the year", rule.year_days),
            ("on day of the month", rule.month_days),
            ("on", tuple(map(_weekday_words, rule.weekdays))),
            ("taking number", rule.positions),
            ("at hour", rule.hours),
            ("at minute", rule.minutes),
            ("at second", rule.seconds),
        )
        if values
    ]
    parts.append(f"from {_stamp_words(rule.start)} on")
    if rule.count is not None:
        parts.append(f"{rule.count} times")
    if rule.until is not None:
        parts.append(f"until {_stamp_words(rule.until)}")
    if rule.excluded:
        parts.append(f"except at {', '.join(map(_stamp_words, rule.excluded))}")
    return parts


def _stamp_words(stamp: Stamp) -> str:
    return f"{stamp.moment.isoformat()}{'Z' if stamp.is_utc else ''}"


def _weekday_words(day: Weekday) -> str:
    name = WEEKDAYS[day.weekday]
    if day.nth is None:
        return name
    return f"the last {name}" if day.nth == -1 else f"{name} number {day.nth}"
