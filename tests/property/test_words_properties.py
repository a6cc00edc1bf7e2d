"""Words against the calendar: what they say about days is what it does."""

from hypothesis import assume, given
from hypothesis import strategies as st

from wheelsched.core import cron
from wheelsched.core.cron_words import MONTHS, WEEKDAYS, cron_words

day_fields = st.sampled_from(
    ["*", "*/2", "*/9", "13", "1,15", "L", "15,L", "1-7", "10-12,20", "1-31", "2-30/7"]
)
weekday_fields = st.sampled_from(
    ["*", "*/2", "1", "1-5", "0,6", "5L", "1#2", "5L,1#2", "1#2,3#4", "0-6", "MON-WED,SUN"]
)
month_fields = st.sampled_from(["*", "1", "3-5", "*/6", "JAN,MAR,DEC", "1-12"])


@given(day_fields, month_fields, weekday_fields)
def test_the_words_say_or_exactly_when_either_day_is_enough(
    day: str, month: str, weekday: str
) -> None:
    expression = "".join(map(str, cron.template(cron.normalise(f"0 9 {day} {month} {weekday}"))))
    fields = cron.calendar(expression).fields
    words = cron_words(expression)
    every_day = cron.calendar("0 9 * * *").fields
    narrows_days = fields.days != every_day.days
    narrows_weekdays = bool(fields.nth_weekdays) or fields.weekdays & 0x7F != 0x7F
    assume(narrows_days and narrows_weekdays)
    assert (", or on " in words) is fields.either_day
    assert (", but only on " in words) is not fields.either_day


@given(month_fields, weekday_fields)
def test_the_words_name_no_month_and_no_weekday_that_is_not_meant(month: str, weekday: str) -> None:
    expression = "".join(map(str, cron.template(cron.normalise(f"0 9 * {month} {weekday}"))))
    fields = cron.calendar(expression).fields
    words = cron_words(expression)
    for index, name in enumerate(MONTHS, start=1):
        assert name not in words or fields.months >> index & 1
    plain = {day for day in range(7) if fields.weekdays >> day & 1}
    meant = plain | {weekday for weekday, _ in fields.nth_weekdays}
    for index, name in enumerate(WEEKDAYS):
        assert name not in words or (index + 1) % 7 in meant
    for weekday_meant, _ in fields.nth_weekdays:
        assert WEEKDAYS[(weekday_meant - 1) % 7] in words
