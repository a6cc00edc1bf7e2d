"""Describes a schedule in words, so that users can check what they wrote.

Invariant: the description names everything that determines the due times: the rule, the start,
the end and the excluded dates. `explain` reports the effects of clock changes.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final, assert_never
from zoneinfo import ZoneInfo

from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.terms import Choose
from wheelsched.schedule.describe.cron import cron_words
from wheelsched.schedule.describe.lists import joined
from wheelsched.schedule.describe.rrule import rule_words
from wheelsched.schedule.rrule import rule as rrule
from wheelsched.schedule.spec import Spec
from wheelsched.values.duration import SECOND

_AMOUNT: Final = re.compile("([0-9]+)([a-z]+)")
_UNITS: Final = {
    "w": "week",
    "d": "day",
    "h": "hour",
    "m": "minute",
    "s": "second",
    "ms": "millisecond",
    "us": "microsecond",
}


def words(spec: Spec, choose: Choose) -> str:
    """One sentence without its full stop, such as `At 09:00 on Monday`."""
    # `fromkeys` drops a repeated start: the rule's own and the schedule's.
    return ", ".join(dict.fromkeys([*_kind_words(spec, choose), *_bound_words(spec)]))


def _kind_words(spec: Spec, choose: Choose) -> list[str]:
    match spec.kind:
        case "cron":
            chosen = cron.choices(cron.template(spec.expression), choose)
            return [cron_words(cron.calendar(spec.expression, chosen).fields)]
        case "at":
            where = "" if spec.expression.endswith("Z") else f" in {spec.timezone}"
            return [f"Once, at {spec.expression}{where}"]
        case "every":
            return [f"Every {_duration_words(spec.expression)} of elapsed time"]
        case "rrule":
            return rule_words(rrule.read(spec.expression))
        case _:
            assert_never(spec.kind)


def _bound_words(spec: Spec) -> Iterator[str]:
    if spec.start_us is not None:
        yield f"from {_local(spec.start_us, spec.timezone)} on"
    if spec.end_us is not None:
        yield f"until {_local(spec.end_us, spec.timezone)}"
    if spec.exclude:
        yield f"except on {joined([days.replace('/', ' to ') for days in spec.exclude])}"


def _local(instant_us: int, timezone: str) -> str:
    moment = datetime.fromtimestamp(instant_us // SECOND, ZoneInfo(timezone))
    return moment.replace(tzinfo=None).isoformat()


def _duration_words(duration: str) -> str:
    """`5 minutes` for `5m`, and `hour` for `1h`."""
    amounts = [(int(amount), _UNITS[unit]) for amount, unit in _AMOUNT.findall(duration)]
    if len(amounts) == 1 and amounts[0][0] == 1:
        return amounts[0][1]
    return joined([f"{amount} {unit}{'' if amount == 1 else 's'}" for amount, unit in amounts])
