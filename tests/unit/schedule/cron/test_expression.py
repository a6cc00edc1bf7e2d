"""The meaning of cron expressions, and which ones are refused."""

import itertools
from collections import Counter
from uuid import UUID

import pytest
from croniter import croniter
from tests.unit.schedule.due import JOB, next_due, schedule_of, spec_of, us

from wheelsched.errors import InvalidCron
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.cron import expression as cron

AFTER = "2026-11-16T03:00"  # a Monday


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * 1", ["2026-11-16 09:00", "2026-11-23 09:00"]),
        ("30 0 9 * * MON-FRI", ["2026-11-16 09:00", "2026-11-17 09:00"]),
        ("@daily", ["2026-11-17 00:00", "2026-11-18 00:00"]),
        ("@Hourly", ["2026-11-16 04:00", "2026-11-16 05:00"]),
        ("@weekly", ["2026-11-22 00:00", "2026-11-29 00:00"]),
        ("@monthly", ["2026-12-01 00:00", "2027-01-01 00:00"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        ("0 0 * jan sun", ["2027-01-03 00:00", "2027-01-10 00:00"]),
        ("0 0 * * 7", ["2026-11-22 00:00", "2026-11-29 00:00"]),
        ("0 0 * * fri-sun", ["2026-11-20 00:00", "2026-11-21 00:00"]),
        ("0 14 * * 1#1", ["2026-12-07 14:00", "2027-01-04 14:00"]),
        ("0 14 * * mon#1,mon#3", ["2026-11-16 14:00", "2026-12-07 14:00"]),
        ("0 0 * * 0#1,1#1,2#1,3#1,4#1,5#1,6#1", ["2026-12-01 00:00", "2026-12-02 00:00"]),
        ("0 0 L * *", ["2026-11-30 00:00", "2026-12-31 00:00"]),
        ("0 0 15,L 2 *", ["2027-02-15 00:00", "2027-02-28 00:00"]),
        ("0 0 ? * MON", ["2026-11-23 00:00", "2026-11-30 00:00"]),
        ("10/20 4 * * *", ["2026-11-16 04:10", "2026-11-16 04:30"]),
        ("5-5 * * * *", ["2026-11-16 03:05", "2026-11-16 04:05"]),
        ("0-59/60 * * * *", ["2026-11-16 04:00", "2026-11-16 05:00"]),
    ],
)
def test_an_expression_has_its_expected_due_times(expression: str, expected: list[str]) -> None:
    assert [due[:16] for due in next_due(expression, 2, after=AFTER)] == expected


def test_six_fields_have_the_second_first() -> None:
    schedule = schedule_of("15 30 9 * * *", after=AFTER)
    assert schedule.next_after(us(AFTER)) == us("2026-11-16T09:30:15")


@pytest.mark.parametrize("spelling", ["5L", "L5", "FRIL", "fril"])
def test_the_last_weekday_of_a_month(spelling: str) -> None:
    assert [due[:10] for due in next_due(f"0 0 * * {spelling}", 3, after=AFTER)] == [
        "2026-11-27",
        "2026-12-25",
        "2027-01-29",
    ]


def test_a_leap_day_comes_every_four_years_but_not_in_2100() -> None:
    assert [due[:10] for due in next_due("0 0 29 2 *", 2, after=AFTER)] == [
        "2028-02-29",
        "2032-02-29",
    ]
    assert next_due("0 0 29 2 *", 1, after="2096-03-01T00:00")[0].startswith("2104-02-29")


def test_day_of_month_or_day_of_week_where_both_are_named() -> None:
    assert [due[:10] for due in next_due("0 0 13 * 5", 4, after="2026-11-01T00:00")] == [
        "2026-11-06",
        "2026-11-13",
        "2026-11-20",
        "2026-11-27",
    ]


@pytest.mark.parametrize("expression", ["0 0 */2 * 5", "0 0 13 * */5", "0 0 13 * ?"])
def test_a_field_that_begins_with_a_star_does_not_widen_the_other(expression: str) -> None:
    """As in Vixie's cron: `*/2` is a star field, so both must match. croniter takes either."""
    by_hand = {
        "0 0 */2 * 5": ["2026-11-13", "2026-11-27", "2026-12-11"],
        "0 0 13 * */5": ["2026-11-13", "2026-12-13", "2027-06-13"],
        "0 0 13 * ?": ["2026-11-13", "2026-12-13", "2027-01-13"],
    }
    found = [due[:10] for due in next_due(expression, 3, after="2026-11-01T00:00")]
    assert found == by_hand[expression]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("* * * *", "has 4 fields"),
        ("* * * * * * 2027", "has 7 fields"),
        ("@reboot", "is not a known alias"),
        ("@every 5m", "write 'every 5m'"),
        ("*/0 * * * *", "minute '*/0' has a step of 0; expected 1 to 60"),
        ("*/90 * * * *", "'every 90m'"),
        ("5-1 * * * *", "minute '5-1' runs backwards; to wrap around write 5-59,0-1"),
        ("0 0 * * 5-1", "day of week '5-1' runs backwards; to wrap around write 5-6,0-1"),
        ("0 0 * * THU-TUE", "write THU-SAT,SUN-TUE"),
        ("0 0 * * THU-TUE/2", "write THU,SAT,MON"),
        ("0 0 * * 5-2/3", "write 5,1"),
        ("0 0 * * 7-2", "write 0-2"),
        ("0 0 * NOV-2/2 *", "write NOV,JAN"),
        ("0 0 * DEC-JAN *", "write DEC,JAN"),
        ("0 22-5/3 * * *", "write 22,1,4"),
        ("50-10/15 * * * *", "write 50,5"),
        ("60 * * * *", "minute '60' is not valid; expected 0-59"),
        ("0 24 * * *", "hour '24' is not valid; expected 0-23"),
        ("0 0 0 * *", "day of month '0' is not valid; expected 1-31"),
        ("0 0 * 13 *", "month '13' is not valid; expected 1-12 or JAN-DEC"),
        ("0 0 * * 8", "day of week '8' is not valid"),
        ("0 0 15W * *", "W, the nearest working day, is not supported"),
        ("0 0 L-3 * *", "day of month 'L-3' is not valid"),
        ("0 0 * * L", "5L for the last Friday"),
        ("0 0 * * 1#6", "day of week '1#6' is not valid"),
        ("0 0 * * 1#1,3", "mixes plain days"),
        ("R * * * *", "minute 'R' is not valid"),
        ("? * * * *", "minute '?' is not valid"),
        ("1,,2 * * * *", "minute '' is not valid"),
        ("-1 * * * *", "minute '-1' is not valid"),
        ("٣ * * * *", "is not valid"),
        ("H(30-10) * * * *", "minute 'H(30-10)' is not valid"),
        ("H(0-99) * * * *", "minute 'H(0-99)' is not valid"),
    ],
)
def test_an_invalid_expression_is_refused(expression: str, says: str) -> None:
    with pytest.raises(InvalidCron) as refused:
        spec_of(expression, after=AFTER)
    assert says in str(refused.value)
    assert refused.value.pointer == "/schedule"


def test_hashed_jobs_spread_evenly() -> None:
    """A hundred thousand `H H * * *` jobs: each of the 1,440 minutes gets its share."""
    pieces = cron.template("H H * * *")
    load = Counter(
        cron.fill(pieces, cron.hashed_by(UUID(int=number).bytes)) for number in range(100_000)
    )
    assert len(load) == 1440
    # 69 on average; beyond eight standard deviations lies a fault, not chance.
    assert max(load.values()) < 69 + 8 * 69**0.5


def test_a_hash_is_the_same_each_time_and_differs_between_fields() -> None:
    spec = spec_of("H H H H *", after=AFTER)
    first = compile_schedule(spec, JOB, 0).next_after(us(AFTER))
    assert first == compile_schedule(spec, JOB, 0).next_after(us(AFTER))
    digits = cron.fill(cron.template("H H H H H H"), cron.hashed_by(JOB.bytes)).split()
    assert len(set(digits)) > 1


@pytest.mark.parametrize("number", range(50))
def test_a_hashed_step_keeps_its_distance_and_its_range(number: int) -> None:
    choose = cron.hashed_by(UUID(int=number).bytes)
    filled = cron.fill(cron.template("H/15 H(9-17) H * H(1-5)"), choose).split()
    minutes = [int(minute) for minute in filled[0].split(",")]
    assert len(minutes) == 4
    assert all(later - earlier == 15 for earlier, later in itertools.pairwise(minutes))
    assert 9 <= int(filled[1]) <= 17
    assert 1 <= int(filled[2]) <= 28
    assert 1 <= int(filled[4]) <= 5
    assert len(cron.fill(cron.template("H(0-29)/10 * * * *"), choose).split()[0].split(",")) == 3


def test_a_step_as_long_as_the_field_is_one_value() -> None:
    """croniter would read the offset 59 of `H/60` as 59-59, and that as every minute."""
    for number in range(200):
        filled = cron.fill(cron.template("H/60 * * * *"), cron.hashed_by(UUID(int=number).bytes))
        assert filled.split()[0].isdecimal()


def test_jobs_with_one_expression_share_one_calendar() -> None:
    assert cron.calendar("0 9 * * *") is cron.calendar("0 9 * * *")


@pytest.mark.parametrize(
    "text",
    [
        "H H * * *",
        "H H H H H",
        "H H H H H H",
        "H/7,3,5-9 H(9-17)/2 * * *",
        "0 0 L,H * *",
        "0 0 H * H(0-7)",
        "0 0 *,H * 1",
        "0 0 H * 1#2,5L",
        "0 0 1 H,MAR *",
    ],
)
def test_a_filled_hash_equals_its_expanded_text(text: str) -> None:
    for number in range(40):
        choose = cron.hashed_by(UUID(int=number).bytes)
        pieces = cron.template(text)
        filled = cron.calendar(text, cron.choices(pieces, choose))
        written = cron.calendar(cron.fill(pieces, choose))
        wall_s: int | None = us(AFTER) // 1_000_000
        for _ in range(20):
            assert wall_s is not None
            found_s = filled.next_wall(wall_s)
            assert found_s == written.next_wall(wall_s), cron.fill(pieces, choose)
            wall_s = found_s


def test_croniter_sees_an_expression_once_however_many_jobs_fill_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    expand = croniter.expand

    def count(expression: str, *, second_at_beginning: bool) -> object:
        seen.append(expression)
        return expand(expression, second_at_beginning=second_at_beginning)

    monkeypatch.setattr(croniter, "expand", count)
    text = "H H 1,H * *"  # of no other test
    spec = spec_of(text, after=AFTER)
    for number in range(500):
        compile_schedule(spec, UUID(int=number), 0).next_after(us(AFTER))
    assert seen == ["* * 1 * *"]


def test_a_year_of_seconds_is_counted_without_walking_it() -> None:
    schedule = schedule_of("* * * * * *", after=AFTER)
    year_us = 365 * 86_400 * 1_000_000
    assert schedule.count(us(AFTER), us(AFTER) + year_us) == 365 * 86_400
