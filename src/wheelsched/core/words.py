"""A schedule in words, for people who check that it says what they meant.

Invariant: the words name everything that decides about due times: the rule, start, end and
excluded dates. What clock changes do to it is for `explain`.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final, assert_never
from zoneinfo import ZoneInfo

from wheelsched.core import cron, rrule
from wheelsched.core.cron_terms import Choose
from wheelsched.core.cron_words import cron_words
from wheelsched.core.duration import SECOND
from wheelsched.core.rule_words import rule_words
from wheelsched.core.spec import Spec
from wheelsched.core.word_lists import joined

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
    # A rule that begins at the start says so itself, and once is enough.
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
    """`5 minutes` of `5m`, and `hour` of `1h`."""
    amounts = [(int(amount), _UNITS[unit]) for amount, unit in _AMOUNT.findall(duration)]
    if len(amounts) == 1 and amounts[0][0] == 1:
        return amounts[0][1]
    return joined([f"{amount} {unit}{'' if amount == 1 else 's'}" for amount, unit in amounts])
