"""Explanations: description, next due times, and a warning for each relevant clock change."""

import pytest
from tests.unit.schedule.due import JOB, spec_of, us

from wheelsched.schedule.explain import Explanation, explain

AFTER = "2026-11-16T03:00"


def explained(
    schedule: object, timezone: str = "UTC", *, gap: str = "shift", overlap: str = "first"
) -> Explanation:
    spec = spec_of(schedule, after=AFTER, timezone=timezone, gap=gap, overlap=overlap)
    return explain(spec, JOB, now_us=us(AFTER, timezone), count=2)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("0 9 * * 1", "At 09:00 on Monday"),
        ("0 9 * * *", "At 09:00"),
        ("@daily", "At 00:00"),
        ("@weekly", "At 00:00 on Sunday"),
        ("@hourly", "Every hour"),
        ("* * * * *", "Every minute"),
        ("1 * * * *", "At 1 minute past every hour"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("*/40 * * * *", "At 0 and 40 minutes past every hour"),
        ("*/7 * * * *", "Every 7 minutes from minute 0 to 56 of every hour"),
        ("3/5 * * * *", "Every 5 minutes from 00:03 to 23:58"),
        ("10-20 * * * *", "Every minute from minute 10 to 20 of every hour"),
        ("*/20,5 * * * *", "At 0, 5, 20 and 40 minutes past every hour"),
        ("5,*/20 * * * *", "At 0, 5, 20 and 40 minutes past every hour"),
        ("0 */6,3 * * *", "At 00:00, 03:00, 06:00, 12:00 and 18:00"),
        ("20 3,*/12 * * *", "At 00:20, 03:20 and 12:20"),
        ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30"),
        ("*/5 9,17 * * *", "Every 5 minutes during the hours 09 and 17"),
        ("*/5 9 * * *", "Every 5 minutes from 09:00 to 09:55"),
        ("*/5 9-17 * * *", "Every 5 minutes from 09:00 to 17:55"),
        ("*/5 */2 * * *", "Every 5 minutes during every 2nd hour from 00 to 22"),
        ("5,6 9-17 * * *", "At 5 and 6 minutes past the hours 09 through 17"),
        ("0 9-17 * * *", "Every hour from 09:00 to 17:00"),
        ("0 */2 * * *", "Every 2 hours from 00:00 to 22:00"),
        ("0 */9 * * *", "At 00:00, 09:00 and 18:00"),
        ("* * * * * *", "Every second"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("30 * * * * *", "At 30 seconds past every minute"),
        ("15 30 * * * *", "At 30 minutes and 15 seconds past every hour"),
        ("15 30 9 * * *", "At 09:30:15"),
        ("5,7 * 9,17 * * *", "At seconds 5 and 7 of every minute during the hours 09 and 17"),
        ("* 5 9,10 * * *", "Every second during minute 5 of the hours 09 and 10"),
        ("0 14 * * 1#1", "At 14:00 on the first Monday of the month"),
        ("0 0 * 3-4 *", "At 00:00 in March and April"),
        ("0 0 * 3-5,9 *", "At 00:00 in March through May and September"),
        ("0 0 * * 1-5", "At 00:00 on Monday through Friday"),
        ("0 0 * * 6,0", "At 00:00 on Saturday and Sunday"),
        ("0 0 * * */2", "At 00:00 on Tuesday, Thursday, Saturday and Sunday"),
        ("0 0 * 3 MON", "At 00:00 on Monday in March"),
        (
            "0 0 */2 * 1",
            "At 00:00 on every 2nd day from day 1 to 31 of the month, but only on Monday",
        ),
        ("0 0 * * 5L,1#2", "At 00:00 on the second Monday and the last Friday of the month"),
        ("0 0 * * 1#2,3#4", "At 00:00 on the second Monday and the fourth Wednesday of the month"),
        (
            "0 0 */9 * 5L",
            "At 00:00 on every 9th day from day 1 to 28 of the month, but only on the last Friday",
        ),
        (
            "0 0 1,2 * 1#1",
            "At 00:00 on days 1 and 2 of the month or on the first Monday of the month",
        ),
        ("0 0 L * *", "At 00:00 on the last day of the month"),
        ("0 0 1 1 *", "At 00:00 on day 1 of January"),
        ("0 0 15,L * *", "At 00:00 on day 15 and the last day of the month"),
        ("0 0 1,10-12,L * *", "At 00:00 on days 1, 10 through 12 and the last day of the month"),
        ("0 0 1-31 * 1", "At 00:00"),
        ("0 0 13 * 0-6", "At 00:00"),
        ("0 0 13 * 5", "At 00:00 on day 13 of the month or on Friday"),
        ("0 0 13 3 5", "At 00:00 on day 13 of March or on Friday in March"),
        ("0 0 * * 5L", "At 00:00 on the last Friday of the month"),
        ("every 90m", "Every 1 hour and 30 minutes of elapsed time"),
        ("every 1h", "Every hour of elapsed time"),
        ("2027-01-01T09:00", "Once, at 2027-01-01T09:00:00 in UTC"),
        ("2027-01-01T09:00+01:00", "Once, at 2027-01-01T08:00:00Z"),
        (
            "DTSTART:20261201T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=10",
            "Every 2 weeks on Monday and Wednesday, from 2026-12-01T09:00:00 on, 10 times",
        ),
        (
            "DTSTART:20261201T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR,2MO;UNTIL=20270101T000000Z",
            (
                "Every month on the last Friday and the second Monday, "
                "from 2026-12-01T09:00:00 on, until 2027-01-01T00:00:00Z"
            ),
        ),
        (
            "DTSTART:20261201T090000 RRULE:FREQ=YEARLY;BYMONTH=3,1;BYMONTHDAY=1,-2;BYHOUR=9,17",
            (
                "Every year on day 1 and the second to last day of the month "
                "in January and March at hours 09 and 17, from 2026-12-01T09:00:00 on"
            ),
        ),
        (
            "RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=17,9",
            "Every week on Monday at 09:00 and 17:00, from 2026-11-16T03:00:01 on",
        ),
        (
            "RRULE:FREQ=DAILY;BYHOUR=9;BYMINUTE=30;BYSECOND=15",
            "Every day at 09:30:15, from 2026-11-16T03:00:01 on",
        ),
        (
            "RRULE:FREQ=MINUTELY;BYHOUR=9",
            "Every minute at second 0 of hour 09, from 2026-11-16T03:00:01 on",
        ),
        (
            "RRULE:FREQ=DAILY;BYHOUR=9,10,11,12;BYMINUTE=5,50",
            (
                "Every day at second 0 of minutes 5 and 50 of hours 09 through 12, "
                "from 2026-11-16T03:00:01 on"
            ),
        ),
        (
            "DTSTART:20261201T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1,1",
            (
                "Every month on Monday, Tuesday, Wednesday, Thursday and Friday, "
                "only the last and the first of these, from 2026-12-01T09:00:00 on"
            ),
        ),
    ],
)
def test_words(schedule: str, words: str) -> None:
    assert explained(schedule).words == words


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"cron": "0 9 * * 1"}, "At 09:00 on Monday"),
        ({"every": "5m"}, "Every 5 minutes of elapsed time"),
        ({"at": "2027-03-01T09:00"}, "Once, at 2027-03-01T09:00:00 in America/New_York"),
        (
            {"rrule": "DTSTART:20260101T090000 RRULE:FREQ=DAILY"},
            "Every day, from 2026-01-01T09:00:00 on",
        ),
    ],
)
def test_the_words_name_start_end_and_excluded_dates(schedule: dict[str, str], words: str) -> None:
    bounds = {
        "start": "2026-12-01T10:00",
        "end": "2027-12-31",
        "exclude": ["2026-12-25", "2027-04-01/2027-04-05"],
    }
    assert explained({**schedule, **bounds}, "America/New_York").words == (
        f"{words}, from 2026-12-01T10:00:00 on, until 2027-12-31T23:59:59, "
        "except on 2026-12-25 and 2027-04-01 to 2027-04-05"
    )


def test_the_words_of_a_rule_name_its_excluded_times_and_its_start_once() -> None:
    rule = "RRULE:FREQ=DAILY EXDATE:20261225T100000,20261226T150000Z"
    assert explained({"rrule": rule, "start": "2026-12-01T10:00"}).words == (
        "Every day, from 2026-12-01T10:00:00 on, "
        "except at 2026-12-25T10:00:00 and 2026-12-26T15:00:00Z"
    )


def test_a_hash_is_explained_with_the_values_of_the_job() -> None:
    assert explained("H H * * *").words.startswith("At ")


def test_the_next_times_in_utc_and_on_local_clocks() -> None:
    due = explained("0 9 * * *", "America/New_York").next_times[0]
    assert due.utc.isoformat() == "2026-11-16T14:00:00+00:00"
    assert due.local.isoformat() == "2026-11-16T09:00:00-05:00"


def test_a_one_off_has_one_next_time() -> None:
    assert len(explained("2027-01-01T09:00").next_times) == 1


def test_a_warning_for_a_gap_and_none_for_the_overlap_it_misses() -> None:
    assert explained("30 2 * * *", "America/New_York").warnings == (
        (
            "2027-03-14: clocks go forward from 02:00 to 03:00, so 02:30 does not occur; "
            "it runs once at 03:00 instead"
        ),
    )
    skipped = explained("30 2 * * *", "America/New_York", gap="skip").warnings
    assert skipped[0].endswith("02:30 does not occur; the next run is at 02:30 on 2027-03-15")


@pytest.mark.parametrize(
    ("overlap", "says"),
    [
        ("first", "it runs the first time only"),
        ("last", "it runs the second time only"),
        ("both", "it runs both times"),
    ],
)
def test_a_warning_for_an_overlap(overlap: str, says: str) -> None:
    assert explained("30 1 * * *", "America/New_York", overlap=overlap).warnings == (
        "2027-11-07: clocks go back from 02:00 to 01:00, so 01:30 occurs twice; " + says,
    )


@pytest.mark.parametrize("schedule", ["*/15 * * * *", "*/15 0-6 * * *"])
def test_a_schedule_that_runs_through_is_warned_of_both_changes(schedule: str) -> None:
    assert explained(schedule, "Europe/London").warnings == (
        (
            "2027-03-28: clocks go forward from 01:00 to 02:00, so its times from 01:00 until "
            "02:00 do not occur; the next run is at 02:00"
        ),
        (
            "2027-10-31: clocks go back from 02:00 to 01:00, so its times from 01:00 until 02:00 "
            "occur twice; it runs both times"
        ),
    )


def test_every_other_hour_is_warned_of_its_one_skipped_time() -> None:
    assert explained("0 */2 * * *", "Europe/Berlin").warnings == (
        (
            "2027-03-28: clocks go forward from 02:00 to 03:00, so 02:00 does not occur; "
            "it runs once at 03:00 instead"
        ),
        (
            "2027-10-31: clocks go back from 03:00 to 02:00, so 02:00 occurs twice; "
            "it runs the first time only"
        ),
    )


def test_an_hourly_schedule_is_warned_of_its_run_after_a_gap() -> None:
    warnings = explained("30 * * * *", "Europe/Berlin").warnings
    assert warnings[0].endswith("so 02:30 does not occur; the next run is at 03:30")


def test_a_warning_names_seconds_where_there_are_some() -> None:
    warnings = explained("15 30 2 * * *", "Europe/Berlin").warnings
    assert "so 02:30:15 does not occur" in warnings[0]


def test_no_warning_where_no_change_touches_it() -> None:
    assert explained("0 9 * * *", "America/New_York").warnings == ()
    assert explained("0 2 * * *", "UTC").warnings == ()
    assert explained("every 5m", "America/New_York").warnings == ()
    assert explained("30 2 * 6 *", "America/New_York").warnings == ()


def test_no_warning_for_a_change_after_the_end_or_on_an_excluded_date() -> None:
    ended = {"cron": "30 2 * * *", "end": "2027-03-01"}
    assert explained(ended, "America/New_York").warnings == ()
    excluded = {"cron": "30 2 * * *", "exclude": ["2027-03-14"]}
    assert explained(excluded, "America/New_York").warnings == ()


AUTUMN = "2027-11-07T01:15:00"  # which the clocks of New York show twice


@pytest.mark.parametrize(
    ("bound", "overlap", "says"),
    [
        # The second 01:30 comes after the end.
        ({"end": f"{AUTUMN}-05:00"}, "first", "it runs the first time only"),
        ({"end": f"{AUTUMN}-05:00"}, "last", "there is no run for it"),
        ({"end": f"{AUTUMN}-05:00"}, "both", "it runs the first time only"),
        # The first 01:30 comes before the start.
        ({"start": f"{AUTUMN}-05:00"}, "first", "there is no run for it"),
        ({"start": f"{AUTUMN}-05:00"}, "last", "it runs the second time only"),
        ({"start": f"{AUTUMN}-05:00"}, "both", "it runs the second time only"),
    ],
)
def test_a_bound_inside_an_overlap(bound: dict[str, str], overlap: str, says: str) -> None:
    warnings = explained({"cron": "30 1 * * *", **bound}, "America/New_York", overlap=overlap)
    assert [warning.partition("; ")[2] for warning in warnings.warnings] == [says]


def test_no_warning_for_an_overlap_whose_every_copy_lies_outside_the_bounds() -> None:
    for bound in ({"end": f"{AUTUMN}-04:00"}, {"start": "2027-11-07T01:45:00-05:00"}):
        schedule = {"cron": "30 1 * * *", **bound}
        assert explained(schedule, "America/New_York", overlap="both").warnings == ()


def test_a_warning_names_the_days_of_a_day_that_never_was() -> None:
    after = "2011-11-16T03:00"
    spec = spec_of("30 9 * * *", after=after, timezone="Pacific/Apia")
    warnings = explain(spec, JOB, now_us=us(after, "Pacific/Apia")).warnings
    assert warnings[0] == (
        "2011-12-30: clocks go forward from 00:00 to 00:00 on 2011-12-31, so 09:30 does not "
        "occur; it runs once at 00:00 on 2011-12-31 instead"
    )


def test_a_one_off_is_warned_of_its_own_gap() -> None:
    assert len(explained("2027-03-14T02:30", "America/New_York").warnings) == 1
