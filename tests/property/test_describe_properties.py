"""Words against the calendar: what they say is what it does, for every expression it takes.

A failure names the seed and the expression: they are enough to repeat it.
"""

import os
import re
from collections.abc import Iterator
from random import Random
from uuid import UUID

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property import expressions
from tests.property.oracle import Cron
from tests.property.words_reader import times_of

from wheelsched.errors import InvalidCron, InvalidField
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.calendar import CronFields
from wheelsched.schedule.describe.cron import MONTHS, WEEKDAYS, cron_words
from wheelsched.schedule.explain import explain
from wheelsched.schedule.parse import parse

SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))
NOW_US = 1_794_800_000_000_000

day_fields = st.sampled_from(
    ["*", "*/2", "*/9", "13", "1,15", "L", "15,L", "1-7", "10-12,20", "1-31", "2-30/7"]
)
weekday_fields = st.sampled_from(
    ["*", "*/2", "1", "1-5", "0,6", "5L", "1#2", "5L,1#2", "1#2,3#4", "0-6", "MON-WED,SUN"]
)
month_fields = st.sampled_from(["*", "1", "3-5", "*/6", "JAN,MAR,DEC", "1-12"])


def fields_of(expression: str) -> CronFields:
    return cron.calendar(cron.normalise(expression)).fields


def mixed(random: Random, *, seconds: bool) -> str:
    """An expression whose fields are lists of every kind of term, `H` among them."""
    fields = expressions.cron(random, seconds=seconds).split()
    others = expressions.cron(random, seconds=seconds).split()
    for index, other in enumerate(others):
        choice = random.random()
        if choice < 0.3:
            fields[index] += f",{other}"
        elif choice < 0.4:
            fields[index] = random.choice(["H", "H/7", f"{other},H"])
    return " ".join(fields)


def accepted(amount: int) -> Iterator[str]:
    random = Random(SEED)
    found = 0
    while found < amount:
        text = mixed(random, seconds=random.random() < 0.3)
        try:
            cron.normalise(text)
        except InvalidCron:
            continue
        found += 1
        yield text


def test_every_accepted_expression_is_explained() -> None:
    random = Random(SEED)
    explained = 0
    for text in accepted(1_000):
        try:
            spec = parse(text, timezone="Europe/Berlin", now_us=NOW_US)
        except InvalidField:  # never due
            continue
        found = explain(spec, UUID(int=random.getrandbits(128)), now_us=NOW_US, count=1)
        assert found.words.startswith(("At ", "Every ")), f"seed {SEED}: {text!r}"
        for sentence in (found.words, *found.warnings):
            doubled = re.search(r"\b([a-z]+) \1\b|  |,,| ,", sentence)
            assert not doubled, f"seed {SEED}: {text!r}: {sentence!r}"
        explained += 1
    assert explained > 800


def rule(random: Random) -> str:
    """An RRULE with some of all parts."""
    frequency = random.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"])
    parts = [f"FREQ={frequency}", f"INTERVAL={random.choice([1, 1, 2, 24])}"]
    for name, values in (
        ("BYMONTH", range(1, 13)),
        ("BYMONTHDAY", (1, 15, 31, -1, -2, -31)),
        ("BYYEARDAY", (1, 100, -1, -366)),
        ("BYWEEKNO", (1, 20, 53, -1, -53)),
        ("BYDAY", ("MO", "SU", "2TU", "-1FR", "-2SA")),
        ("BYHOUR", range(24)),
        ("BYMINUTE", range(60)),
        ("BYSECOND", range(60)),
        ("BYSETPOS", (1, 2, -1, -3)),
    ):
        if random.random() < 0.25:
            chosen = random.sample(values, random.randint(1, 3))
            parts.append(f"{name}={','.join(map(str, chosen))}")
    parts += random.choice([[], ["COUNT=1"], ["COUNT=7"], ["UNTIL=20300101T000000Z"]])
    return f"DTSTART:20260101T090000 RRULE:{';'.join(parts)}"


def test_every_accepted_rule_is_explained() -> None:
    random = Random(SEED)
    explained = 0
    for _ in range(1_500):
        text = rule(random)
        try:
            spec = parse(text, timezone="Europe/Berlin", now_us=NOW_US)
        except InvalidField:
            continue
        words = explain(spec, UUID(int=0), now_us=NOW_US, count=1).words
        assert not re.search(r"\b([a-z]+) \1\b|  |,,| ,|None", words), f"seed {SEED}: {text!r}"
        explained += 1
    assert explained > 150


def test_a_reader_of_the_words_finds_the_same_times() -> None:
    random = Random(SEED)
    for number in range(2_500):
        text = expressions.cron(random, seconds=number % 10 == 0)
        if random.random() < 0.5:
            hours = ",".join({expressions.hour(random) for _ in range(2)})
            minutes = ",".join({expressions.minute(random) for _ in range(2)})
            text = " ".join([*text.split()[:-5], minutes, hours, *text.split()[-3:]])
        oracle = Cron(text)
        expected = {
            hour * 3_600 + minute * 60 + second
            for hour in oracle.hours
            for minute in oracle.minutes
            for second in oracle.seconds
        }
        words = cron_words(fields_of(text))
        assert times_of(words) == expected, f"seed {SEED}: {text!r}: {words!r}"


def test_different_times_have_different_words() -> None:
    random = Random(SEED)
    meaning: dict[str, tuple[object, ...]] = {}
    for text in accepted(1_500):
        pieces = cron.template(cron.normalise(text))
        chosen = cron.choices(pieces, cron.hashed_by(random.randbytes(16)))
        fields = cron.calendar(cron.normalise(text), chosen).fields
        for variant in (fields, *one_value_changed(fields, random)):
            words = cron_words(variant)
            assert meaning.setdefault(words, means(variant)) == means(variant), (
                f"seed {SEED}: {text!r}: {words!r}"
            )


def one_value_changed(fields: CronFields, random: Random) -> Iterator[CronFields]:
    """The same fields with one value more or less, field by field."""
    ranges = {"seconds": (0, 59), "minutes": (0, 59), "hours": (0, 23), "days": (1, 31)}
    for name, (low, high) in {**ranges, "months": (1, 12), "weekdays": (0, 6)}.items():
        changed = getattr(fields, name) ^ 1 << random.randint(low, high)
        if changed and not (name == "weekdays" and fields.nth_weekdays):
            yield replace(fields, **{name: changed})


def means(fields: CronFields) -> tuple[object, ...]:
    """All that decides when it is due."""
    every_day = fields.days == (1 << 32) - 2
    every_weekday = not fields.nth_weekdays and fields.weekdays & 0x7F == 0x7F
    times = fields.seconds, fields.minutes, fields.hours, fields.months
    if fields.either_day and (every_day or every_weekday):
        return times
    days = None if every_day else (fields.days, fields.last_day)
    weekdays = None if every_weekday else (fields.weekdays & 0x7F, fields.nth_weekdays)
    if days is None and weekdays is None:
        return times
    either = fields.either_day and days is not None and weekdays is not None
    return (*times, days, weekdays, either)


@given(day_fields, month_fields, weekday_fields)
def test_the_words_say_or_exactly_when_either_day_is_enough(
    day: str, month: str, weekday: str
) -> None:
    fields = fields_of(f"0 9 {day} {month} {weekday}")
    words = cron_words(fields)
    every_day = fields_of("0 9 * * *")
    narrows_days = fields.days != every_day.days
    narrows_weekdays = bool(fields.nth_weekdays) or fields.weekdays & 0x7F != 0x7F
    assume(narrows_days and narrows_weekdays)
    assert (" or on " in words) is fields.either_day
    assert (", but only on " in words) is not fields.either_day


@given(month_fields, weekday_fields)
def test_the_words_name_no_month_and_no_weekday_that_is_not_meant(month: str, weekday: str) -> None:
    fields = fields_of(f"0 9 * {month} {weekday}")
    words = cron_words(fields)
    for index, name in enumerate(MONTHS, start=1):
        assert name not in words or fields.months >> index & 1
    plain = {day for day in range(7) if fields.weekdays >> day & 1}
    meant = plain | {weekday for weekday, _ in fields.nth_weekdays}
    for index, name in enumerate(WEEKDAYS):
        assert name not in words or (index + 1) % 7 in meant
    for weekday_meant, _ in fields.nth_weekdays:
        assert WEEKDAYS[(weekday_meant - 1) % 7] in words
