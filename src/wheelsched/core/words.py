"""A schedule in words, for people who check that it says what they meant.

Invariant: the words describe the rule alone; what clock changes do to it is for `explain`.
"""

from typing import assert_never

from cron_descriptor import Options, get_description

from wheelsched.core import cron, rrule
from wheelsched.core.rrule import Rule, Weekday
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
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def words(spec: Spec, choose: cron.Choose) -> str:
    """One sentence without its full stop, such as `At 09:00, only on Monday`."""
    match spec.kind:
        case "cron":
            return _cron_words(cron.fill(cron.template(spec.expression), choose))
        case "at":
            where = "" if spec.expression.endswith("Z") else f" in {spec.timezone}"
            return f"Once, at {spec.expression}{where}"
        case "every":
            return f"Every {spec.expression} of elapsed time"
        case "rrule":
            return _rule_words(rrule.read(spec.expression))
        case _:
            assert_never(spec.kind)


def _cron_words(expression: str) -> str:
    options = Options()
    options.use_24hour_time_format = True
    options.locale_code = "en_US"  # not the host's: the same words for every user of a service
    return str(get_description(expression, options))


def _rule_words(rule: Rule) -> str:
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
    parts.append(f"from {rule.start.moment.isoformat()}{'Z' if rule.start.is_utc else ''} on")
    if rule.count is not None:
        parts.append(f"{rule.count} times")
    if rule.until is not None:
        parts.append(f"until {rule.until.moment.isoformat()}{'Z' if rule.until.is_utc else ''}")
    return ", ".join(parts)


def _weekday_words(day: Weekday) -> str:
    name = _WEEKDAYS[day.weekday]
    if day.nth is None:
        return name
    return f"the last {name}" if day.nth == -1 else f"{name} number {day.nth}"
