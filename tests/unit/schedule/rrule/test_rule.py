"""The meaning of RRULE parts, which rules are refused, and the cost of an old DTSTART."""

from datetime import date, datetime, timedelta

import pytest
from tests.unit.schedule.due import next_due, schedule_of, spec_of, us

from wheelsched.errors import InvalidRecurrence, ScheduleNeverFires
from wheelsched.schedule.rrule import bounds as rrule_bounds
from wheelsched.schedule.rrule import calendar as rrule_calendar
from wheelsched.schedule.rrule import days as rrule_days
from wheelsched.schedule.rrule import rule as rrule
from wheelsched.schedule.rrule import year as rrule_year

AFTER = "2026-11-16T03:00"  # a Monday


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY;BYHOUR=9,17", ["2026-11-16 09:00", "2026-11-16 17:00"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;BYHOUR=9", ["2026-11-16 09:00", "2026-11-18 09:00"]),
        ("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", ["2026-11-27 09:00", "2026-12-25 09:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=0", ["2026-11-30 00:00", "2026-12-31 00:00"]),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=9",
            ["2026-11-30 09:00", "2026-12-31 09:00"],
        ),
        ("FREQ=YEARLY;BYYEARDAY=100;BYHOUR=9", ["2027-04-10 09:00", "2028-04-09 09:00"]),
        ("FREQ=HOURLY;INTERVAL=6", ["2026-11-16 03:00", "2026-11-16 09:00"]),
        ("FREQ=MINUTELY;INTERVAL=90", ["2026-11-16 03:00", "2026-11-16 04:30"]),
        ("FREQ=DAILY;BYHOUR=9;UNTIL=20261117", ["2026-11-16 09:00", "2026-11-17 09:00"]),
        ("FREQ=DAILY;BYHOUR=9;UNTIL=20261116T120000Z", ["2026-11-16 09:00"]),
        ("FREQ=DAILY;BYHOUR=9;COUNT=1", ["2026-11-16 09:00"]),
    ],
)
def test_a_rule_has_its_expected_due_times(rule: str, expected: list[str]) -> None:
    assert [due[:16] for due in next_due(f"RRULE:{rule}", 2, after=AFTER)] == expected


def test_week_53_and_week_1_around_new_year() -> None:
    assert [
        due[:10] for due in next_due("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO,SU", 4, after=AFTER)
    ] == ["2026-12-28", "2027-01-03", "2032-12-27", "2033-01-02"]
    assert [
        due[:10] for due in next_due("FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO", 3, after="2024-06-01T00:00")
    ] == ["2024-12-30", "2025-12-29", "2027-01-04"]


def test_week_numbers_are_those_of_iso_8601() -> None:
    for week in (1, 2, 52, 53):
        every_day = "MO,TU,WE,TH,FR,SA,SU"
        text = f"DTSTART:19700101T000000\nRRULE:FREQ=YEARLY;BYWEEKNO={week};BYDAY={every_day}"
        first = date(1970, 1, 1)
        days = rrule_days.RecurringDays(rrule_days.pattern_of(rrule.read(text), first))
        found = [day for run in days.runs(0, 130 * 365) for day in range(*run)]
        expected = [
            day
            for day in range(130 * 365)
            if (first + timedelta(days=day)).isocalendar().week == week
        ]
        assert found == expected, week


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("DTSTART:20261112T090000 ", ["2027-05-20", "2028-05-18"]),  # a Thursday
        ("", ["2027-05-17", "2028-05-15"]),  # registered on a Monday
    ],
)
def test_a_week_number_without_byday_takes_the_weekday_of_the_start(
    start: str, expected: list[str]
) -> None:
    found = next_due(f"{start}RRULE:FREQ=YEARLY;BYWEEKNO=20", 2, after=AFTER)
    assert [due[:10] for due in found] == expected


def test_a_week_number_with_other_days_needs_no_weekday() -> None:
    rule = "FREQ=YEARLY;BYWEEKNO=20;BYMONTHDAY=17,20"
    found = next_due(rule, 3, after=AFTER)
    assert [due[:10] for due in found] == ["2027-05-17", "2027-05-20", "2028-05-17"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=MONTHLY;BYDAY=FR,-1FR", ["2026-11-20", "2026-11-27", "2026-12-04"]),
        ("FREQ=MONTHLY;BYDAY=MO,-1WE", ["2026-11-16", "2026-11-23", "2026-11-25"]),
        ("FREQ=MONTHLY;BYDAY=1TU,-1WE,SU", ["2026-11-22", "2026-11-25", "2026-11-29"]),
        ("FREQ=YEARLY;BYDAY=MO,-5TU;BYMONTH=12", ["2026-12-01", "2026-12-07", "2026-12-14"]),
        ("FREQ=YEARLY;BYDAY=-1TH,1SU", ["2026-12-31", "2027-01-03", "2027-12-30"]),
        ("FREQ=MONTHLY;BYDAY=MO,-1WE;BYSETPOS=-1", ["2026-11-30", "2026-12-30", "2027-01-27"]),
        (
            "FREQ=MONTHLY;BYDAY=SU,1FR;BYMONTHDAY=1,2,3,4",
            ["2026-12-04", "2027-01-01", "2027-01-03"],
        ),
    ],
)
def test_a_list_of_plain_and_numbered_days_is_their_union(rule: str, expected: list[str]) -> None:
    assert [due[:10] for due in next_due(rule, 3, after=AFTER)] == expected


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("INTERVAL=2;FREQ=DAILY", "RRULE:INTERVAL=2;FREQ=DAILY"),
        ("freq = daily; byminute = 0, 15", "RRULE:FREQ=DAILY;BYMINUTE=0,15;BYSECOND=0"),
        ("RRULE: FREQ=DAILY", "RRULE:FREQ=DAILY"),
        ("FREQ=HOURLY;BYMINUTE=0, 15;BYSECOND=0", "RRULE:FREQ=HOURLY;BYMINUTE=0,15;BYSECOND=0"),
        ("RRULE:FREQ=DAILY; EXDATE:20261225", "RRULE:FREQ=DAILY;\nEXDATE:20261225"),
        ("FREQ=DAILY;BYDAY=MO,\r\n WE", "RRULE:FREQ=DAILY;BYDAY=MO,WE"),
    ],
)
def test_spaces_and_the_order_of_parts_do_not_matter(written: str, stored: str) -> None:
    spec = spec_of(written, after=AFTER)
    assert spec.kind == "rrule"
    assert spec.expression.partition("\n")[2] == stored


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("RDATE:20261225T090000\nRRULE:FREQ=DAILY", "'RDATE' is not supported"),
        ("EXRULE:FREQ=DAILY\nRRULE:FREQ=DAILY", "'EXRULE' is not supported"),
        ("BEGIN:VEVENT\nRRULE:FREQ=DAILY\nEND:VEVENT", "'BEGIN' is not supported"),
        ("INTERVAL=2", "FREQ is missing"),
        ("BYDAY=MO;BYHOUR=9", "FREQ is missing"),
        ("RRULE FREQ=DAILY", "'FREQ=DAILY' is not part of a rule"),
    ],
)
def test_an_incomplete_rule_is_refused_as_a_rule(written: str, says: str) -> None:
    with pytest.raises(InvalidRecurrence, match=says):
        spec_of(written, after=AFTER)


@pytest.mark.parametrize("until", ["99991231", "99991231T235959", "99991231T235959Z", "22000101"])
def test_an_until_beyond_the_last_year_is_ignored(until: str) -> None:
    rule = f"DTSTART:20261116T090000 RRULE:FREQ=YEARLY;UNTIL={until}"
    found = next_due(rule, 999, after=AFTER)
    assert [len(found), found[-1][:10]] == [174, "2199-11-16"]


def test_excluded_dates_count_but_do_not_run() -> None:
    rule = (
        "DTSTART:20261120T090000\nRRULE:FREQ=DAILY;COUNT=4\nEXDATE:20261121T090000,20261122T090000"
    )
    assert [due[:10] for due in next_due(rule, 9, after=AFTER)] == ["2026-11-20", "2026-11-23"]
    schedule = schedule_of(rule, after=AFTER)
    assert schedule.count(us(AFTER), us("2027-01-01")) == 2
    assert schedule.last_before(us("2026-11-23")) == us("2026-11-20T09:00")


def test_count_is_from_dtstart_on() -> None:
    rule = "DTSTART:20261101T000000\nRRULE:FREQ=DAILY;COUNT=17"
    assert [due[:10] for due in next_due(rule, 9, after=AFTER)] == ["2026-11-17"]


def test_the_only_due_time_is_found_from_the_second_copy_of_its_hour() -> None:
    new_york = "America/New_York"
    only = "DTSTART:20261101T013000 RRULE:FREQ=DAILY;COUNT=1"
    schedule = schedule_of(only, after="2026-10-31T00:00", timezone=new_york)
    assert schedule.last_before(us("2026-11-01T01:10-05:00")) == us("2026-11-01T01:30-04:00")
    assert schedule.last_before(us("2026-11-01T01:30-04:00")) is None


def test_it_is_read_on_the_clocks_of_the_zone() -> None:
    found = next_due(
        "DTSTART;TZID=America/New_York:20260301T023000 RRULE:FREQ=DAILY",
        2,
        after="2026-03-07T12:00",
        timezone="America/New_York",
    )
    assert found == ["2026-03-08 03:00 -0400", "2026-03-09 02:30 -0400"]


def test_an_hourly_rule_runs_in_both_copies_of_an_hour() -> None:
    found = next_due(
        "DTSTART:20261101T013000 RRULE:FREQ=HOURLY",
        3,
        after="2026-11-01T00:30",
        timezone="America/New_York",
        overlap="first",
    )
    assert found == [
        "2026-11-01 01:30 -0400",
        "2026-11-01 01:30 -0500",
        "2026-11-01 02:30 -0500",
    ]


def test_an_instant_as_dtstart_is_turned_to_the_zone() -> None:
    found = next_due(
        "DTSTART:20261116T140000Z RRULE:FREQ=DAILY",
        1,
        after="2026-11-16T05:00",
        timezone="America/New_York",
    )
    assert found == ["2026-11-16 09:00 -0500"]


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY",
        "FREQ=MINUTELY;INTERVAL=7",
        "FREQ=WEEKLY;INTERVAL=3;BYDAY=TU",
        "FREQ=MONTHLY;BYDAY=2TU;COUNT=2000",
    ],
)
def test_an_old_dtstart_costs_no_expansion_of_the_years_between(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded: list[int] = []
    expand = rrule_year.expand_year

    def count(parts: rrule_year.DayParts, year: int) -> int:
        expanded.append(year)
        return expand(parts, year)

    rrule_days._masks_by_shape.cache_clear()
    rrule_calendar.calendar.cache_clear()
    rrule_bounds.clock.cache_clear()
    monkeypatch.setattr(rrule_days, "expand_year", count)
    schedule = schedule_of(f"DTSTART:19710101T000001 RRULE:{rule}", after=AFTER)
    due_us = us(AFTER)
    for _ in range(100):
        next_us = schedule.next_after(due_us)
        assert next_us is not None
        due_us = next_us
    assert 1 <= len(expanded) <= 21


@pytest.mark.parametrize(
    ("rule", "patterns"),
    [
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0", 1),
        ("FREQ=DAILY;INTERVAL=3", 3),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE", 2),
        ("FREQ=WEEKLY", 7),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=3", 1),
        ("FREQ=HOURLY;INTERVAL=5;COUNT=99", 5),
        ("FREQ=SECONDLY;UNTIL=20270101", 1),
    ],
)
def test_jobs_that_differ_in_dtstart_share_their_calendar(rule: str, patterns: int) -> None:
    first = datetime(2026, 1, 1, 9)  # noqa: DTZ001 - a wall clock has no zone
    rules = [
        rrule.read(f"DTSTART:{first + timedelta(days=day):%Y%m%dT%H%M%S}\nRRULE:{rule}")
        for day in range(300)
    ]
    assert len({rrule_calendar.pattern_of(rule, "UTC") for rule in rules}) == patterns


@pytest.mark.parametrize(
    "rule", ["FREQ=HOURLY;INTERVAL=2;BYHOUR=1", "FREQ=SECONDLY;INTERVAL=90;BYSECOND=13"]
)
def test_no_day_is_searched_when_no_time_is_left(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rrule_days.RecurringDays, "next_from", lambda *_: pytest.fail("searched"))
    monkeypatch.setattr(rrule_days.RecurringDays, "last_until", lambda *_: pytest.fail("searched"))
    with pytest.raises(ScheduleNeverFires):
        spec_of(f"DTSTART:20200101T000000 RRULE:{rule}", after=AFTER)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("FREQ=FORTNIGHTLY", "FREQ=FORTNIGHTLY is not valid; must be one of: YEARLY"),
        ("INTERVAL=2", "FREQ is missing"),
        ("FREQ=DAILY;FREQ=DAILY", "repeated"),
        ("FREQ=DAILY;BYEASTER=1", "'BYEASTER' is unknown"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0 is not valid; expected 1 to"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL=-1 is not valid"),
        ("FREQ=DAILY;COUNT=0", "COUNT=0 is not valid"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20270101", "COUNT and UNTIL"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL=TOMORROW is not a valid time"),
        ("FREQ=DAILY;UNTIL=99991332", "UNTIL=99991332 is not a valid time"),
        ("FREQ=DAILY;UNTIL=19691231", "is not a valid time from 1970"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR=24 is not valid; expected 0 to 23"),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY=0 is not valid"),
        ("FREQ=DAILY;BYDAY=1MO", "a numbered BYDAY such as 1MO without"),
        ("FREQ=DAILY;BYDAY=XX", "write e.g. MO, 1MO or -1FR"),
        ("FREQ=DAILY;WKST=XX", "WKST=XX is not valid; must be one of"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "BYWEEKNO without FREQ=YEARLY"),
        ("FREQ=DAILY;BYYEARDAY=1", "BYYEARDAY with"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY with FREQ=WEEKLY"),
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1", "BYSETPOS without"),
        ("FREQ=MONTHLY;BYDAY=MO;BYHOUR=1,2;BYSETPOS=1", "several times a day"),
        ("FREQ=HOURLY;INTERVAL=25", "longer than a day"),
        ("FREQ=HOURLY;INTERVAL=5;BYHOUR=9", "divides 24"),
        ("FREQ=MINUTELY;INTERVAL=7;COUNT=10001", "Use UNTIL"),
        ("FREQ=DAILY\nRRULE:FREQ=DAILY", "exactly one RRULE"),
        ("FREQ=DAILY\nRDATE:20270101T000000", "'RDATE' is not supported"),
        (
            "FREQ=DAILY BYHOUR=9",
            "'BYHOUR=9' is not part of a rule; separate the parts of a rule with ';'",
        ),
        ("FREQ=DAILY;BYDAY=MO WE", "'WE' is not part of a rule"),
        ("FREQ=DAILY;BYMINUTE=0,\n15", "'15' is not part of a rule"),
        ("FREQ=DAILY\nDTSTART;TZID=Europe/Paris:20270101T000000", "time zone of the job is UTC"),
    ],
)
def test_an_invalid_expression_is_refused(rule: str, says: str) -> None:
    with pytest.raises(InvalidRecurrence) as refused:
        spec_of({"rrule": f"RRULE:{rule}"}, after=AFTER)
    assert says in str(refused.value)
    assert refused.value.pointer == "/schedule/rrule"
