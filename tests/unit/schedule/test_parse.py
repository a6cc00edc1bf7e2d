"""Invalid input: each error points at its field and says what is expected."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.schedule.due import JOB, us

from wheelsched import errors
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import first_due_us, one_off_like, parse
from wheelsched.schedule.spec import Spec
from wheelsched.values.duration import HOUR, MINUTE

NOW = us("2026-11-16T03:00")
CRON = "0 9 * * 1"

REFUSALS: dict[str, tuple[object, type[errors.InvalidField], str, str]] = {
    "no schedule": ({}, errors.ScheduleMissing, "/schedule", "exactly one of cron, at, every"),
    "only a start": ({"start": "2027-01-01"}, errors.ScheduleMissing, "/schedule", "exactly one"),
    "two schedules": (
        {"cron": CRON, "every": "5m"},
        errors.ScheduleMissing,
        "/schedule",
        "this one has cron and every",
    ),
    "null": (None, errors.ScheduleMissing, "/schedule", "a string, or an object"),
    "a number": ({"every": 5}, errors.ScheduleMissing, "/schedule/every", "must be text"),
    "an empty string": ("  ", errors.ScheduleMissing, "/schedule", "must be text"),
    "an unknown key": ({"cron": CRON, "tz": 1}, errors.UnknownField, "/schedule/tz", "'tz'"),
    "a key with a slash": (
        {"cron": "@daily", "a/b": 1},
        errors.UnknownField,
        "/schedule/a~1b",
        "'a/b'",
    ),
    "only nulls": (
        {"cron": None, "at": None},
        errors.ScheduleMissing,
        "/schedule",
        "none of them",
    ),
    "too few fields": ("* * * *", errors.InvalidCron, "/schedule", "has 4 fields"),
    "a step of zero": ({"cron": "*/0 * * * *"}, errors.InvalidCron, "/schedule/cron", "step of 0"),
    "a range backwards": ("5-1 * * * *", errors.InvalidCron, "/schedule", "5-59,0-1"),
    "minute 60": ("60 * * * *", errors.InvalidCron, "/schedule", "0-59"),
    "the 30th of February": ("0 0 30 2 *", errors.ScheduleNeverFires, "/schedule", "never due"),
    "the 31st of short months": (
        {"cron": "0 0 31 2,4,6,9,11 *"},
        errors.ScheduleNeverFires,
        "/schedule/cron",
        "never due",
    ),
    "the 31st of a month by hash": (
        "0 0 31 H *",
        errors.ScheduleNeverFires,
        "/schedule",
        "never due",
    ),
    "256 characters": (
        "0," * 124 + "0 * * * *",
        errors.ScheduleTooLong,
        "/schedule",
        "at most 255 are allowed",
    ),
    "a megabyte": ("9" * 1_000_000, errors.ScheduleTooLong, "/schedule", "1000000 characters"),
    "a one-off in the past": (
        "2026-11-16T02:58:59Z",
        errors.ScheduleInPast,
        "/schedule",
        "the grace of 1m; choose a time in the future",
    ),
    "year 9999": ("9999-12-31T23:59:59Z", errors.InvalidInstant, "/schedule", "1970 to 2199"),
    "year 10000": ({"at": "10000-01-01T00:00Z"}, errors.InvalidInstant, "/schedule/at", "2199"),
    "a day that does not exist": (
        "2027-02-30T00:00",
        errors.InvalidInstant,
        "/schedule",
        "a valid date",
    ),
    "a date alone": ("2027-02-03", errors.InvalidInstant, "/schedule", "2026-03-08T09:30:00"),
    "an interval of nothing": ("every 0s", errors.InvalidInterval, "/schedule", "at least 1s"),
    "an interval below a second": ("every 999ms", errors.InvalidInterval, "/schedule", "1s"),
    "a day": ({"every": "day"}, errors.InvalidInterval, "/schedule/every", "write @daily"),
    "a weekday": ("every Friday at 9", errors.InvalidInterval, "/schedule", "'0 9 * * FRI'"),
    "months": ("every 3 months", errors.InvalidInterval, "/schedule", "write @monthly"),
    "minutes or months": ("every 5M", errors.InvalidInterval, "/schedule", "minutes or months"),
    "an interval without a unit": ("every 5", errors.InvalidInterval, "/schedule", "'90s'"),
    "no time from now": ("in", errors.InvalidInstant, "/schedule", "write e.g. 'in 5m'"),
    "a vague time from now": ({"at": "in a bit"}, errors.InvalidInstant, "/schedule/at", "in 5m"),
    "ages from now": ("in 10000w", errors.InvalidInstant, "/schedule", "is later than 2199"),
    "a long time from now": ("in 5m" + " " * 99, errors.InvalidInstant, "/schedule", "in 5m"),
    "a duration alone": ("5m", errors.InvalidCron, "/schedule", "'every 5m' to repeat, or 'in 5m'"),
    "an alias without its @": ("daily", errors.InvalidCron, "/schedule", "write '@daily'"),
    "tomorrow": ("tomorrow at 9", errors.InvalidCron, "/schedule", "or 'in 5m'"),
    "an interval of a minute or a month": (
        "every 1M",
        errors.InvalidInterval,
        "/schedule",
        "'1M' may mean minutes or months; write 5m for minutes",
    ),
    "@every": ("@every 5m", errors.InvalidCron, "/schedule", "write 'every 5m'"),
    "a zone before the fields": (
        {"cron": "CRON_TZ=Asia/Tokyo 0 0 * * *"},
        errors.InvalidCron,
        "/schedule/cron",
        "set the field timezone to 'Asia/Tokyo', and the schedule to '0 0 * * *'",
    ),
    "UTC before the fields": (
        "TZ=UTC 0 0 * * *",
        errors.InvalidCron,
        "/schedule",
        "timezone to 'UTC'",
    ),
    "INTERVAL=0": (
        "RRULE:FREQ=DAILY;INTERVAL=0",
        errors.InvalidRecurrence,
        "/schedule",
        "INTERVAL=0 is not valid; expected 1 to",
    ),
    "an RRULE that cannot match": (
        "RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        errors.ScheduleNeverFires,
        "/schedule",
        "never due",
    ),
    "an RRULE that is over": (
        {"rrule": "DTSTART:20200101T000000 RRULE:FREQ=DAILY;COUNT=3"},
        errors.ScheduleNeverFires,
        "/schedule/rrule",
        "its last due time was 2020-01-03",
    ),
    "an end before the start": (
        {"cron": CRON, "start": "2027-02-01", "end": "2027-01-31"},
        errors.EndBeforeStart,
        "/schedule/end",
        "before the start",
    ),
    "an end in the past": (
        {"cron": CRON, "end": "2026-01-01"},
        errors.ScheduleNeverFires,
        "/schedule/end",
        "the end, 2026-01-01T23:59:59.999000+00:00, has passed; choose a later end",
    ),
    "an end before the next time": (
        {"cron": "0 0 1 1 *", "end": "2026-12-01"},
        errors.ScheduleNeverFires,
        "/schedule/end",
        "next due at 2027-01-01T00:00:00+00:00, after the end",
    ),
    "an offset beyond the last year": (
        "2199-12-31T23:59:59-12:00",
        errors.InvalidInstant,
        "/schedule",
        "'2199-12-31T23:59:59-12:00' is out of range",
    ),
    "an offset before the first year": (
        {"at": "1970-01-01T00:00:00+05:00"},
        errors.InvalidInstant,
        "/schedule/at",
        "expected 1970-01-01T00:00:00Z to",
    ),
    "a start beyond the last year": (
        {"every": "1s", "start": "2199-12-31T23:59:59-12:00"},
        errors.InvalidInstant,
        "/schedule/start",
        "out of range",
    ),
    "a start that is not a time": (
        {"cron": CRON, "start": "tomorrow"},
        errors.InvalidInstant,
        "/schedule/start",
        "'tomorrow' is not a valid time",
    ),
    "an excluded date that does not exist": (
        {"cron": CRON, "exclude": ["2026-12-25", "2026-13-01"]},
        errors.InvalidExclusion,
        "/schedule/exclude/1",
        "is not a valid date",
    ),
    "an excluded range backwards": (
        {"cron": CRON, "exclude": ["2027-01-02/2026-12-24"]},
        errors.InvalidExclusion,
        "/schedule/exclude/0",
        "write the earlier date first",
    ),
    "excluded dates as a text": (
        {"cron": CRON, "exclude": "2026-12-25"},
        errors.InvalidExclusion,
        "/schedule/exclude",
        "must be a list",
    ),
    "everything excluded": (
        {"at": "2026-12-25T09:00", "exclude": ["2026-12-25"]},
        errors.ScheduleNeverFires,
        "/schedule/at",
        "excluded dates",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(name: str) -> None:
    schedule, error, pointer, says = REFUSALS[name]
    with pytest.raises(error) as refused:
        parse(schedule, now_us=NOW)
    assert refused.value.pointer == pointer
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "timezone",
    [
        "Mars/Olympus",
        "",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe",
        "localtime",
        "right/Europe/London",
        "posix/UTC",
        "UTC\0",
        "x" * 999,
    ],
)
def test_refused_time_zone(timezone: str) -> None:
    with pytest.raises(errors.UnknownTimezone) as refused:
        parse(CRON, timezone=timezone, now_us=NOW)
    assert refused.value.pointer == "/timezone"
    assert "e.g. Europe/London" in str(refused.value)


def test_refused_dst_rules() -> None:
    with pytest.raises(errors.InvalidDst) as refused:
        parse(CRON, dst_gap="jump", now_us=NOW)
    assert (refused.value.pointer, str(refused.value)) == (
        "/dst/gap",
        "'jump' is not valid; must be one of: shift, skip",
    )
    with pytest.raises(errors.InvalidDst) as refused:
        parse(CRON, dst_overlap="none", now_us=NOW)
    assert refused.value.pointer == "/dst/overlap"


def test_a_local_time_whose_instant_is_beyond_the_last_year() -> None:
    late = "2199-12-31T23:59:59"
    assert parse(late, now_us=NOW).expression == late
    with pytest.raises(errors.InvalidInstant) as refused:
        parse({"at": late}, timezone="America/New_York", now_us=NOW)
    assert refused.value.pointer == "/schedule/at"


def test_a_key_that_is_null_is_not_written() -> None:
    written = {"cron": CRON, "at": None, "start": None, "exclude": None}
    assert parse(written, now_us=NOW) == parse(CRON, now_us=NOW)


@pytest.mark.parametrize("written", [None, 5, True, ["UTC"], {"a": 1}])
@pytest.mark.parametrize(
    ("parameter", "pointer"),
    [
        ("timezone", "/timezone"),
        ("dst_gap", "/dst/gap"),
        ("dst_overlap", "/dst/overlap"),
        ("jitter", "/jitter"),
    ],
)
def test_a_value_that_is_not_text_is_refused_with_its_pointer(
    written: object, parameter: str, pointer: str
) -> None:
    options: dict[str, object] = {parameter: written}
    with pytest.raises(errors.InvalidField) as refused:
        parse(CRON, now_us=NOW, **options)  # type: ignore[arg-type]  # the names are parametrised
    assert refused.value.pointer == pointer


# At NOW, 03:00, this ends within the day: an hour by hash has passed for some jobs.
ENDING = {"cron": "0 H * * *", "end": "2026-11-16T23:30:00Z"}


def test_a_hash_that_leaves_a_job_nothing_is_refused_when_the_job_is_known() -> None:
    spec = parse(ENDING, now_us=NOW)
    jobs = [UUID(int=number) for number in range(200)]
    due = {job_id: compile_schedule(spec, job_id, NOW).next_after(NOW) for job_id in jobs}
    assert None in due.values()
    assert len(set(due.values())) > 10
    for job_id, due_us in due.items():
        if due_us is not None:
            assert first_due_us(spec, job_id, now_us=NOW) == due_us
            continue
        with pytest.raises(errors.ScheduleNeverFires, match="after the end") as refused:
            first_due_us(spec, job_id, now_us=NOW)
        assert refused.value.pointer == "/schedule/end"


def test_a_hash_is_not_refused_for_one_unlucky_hour() -> None:
    """Some jobs are due before this noon, though not those that hash to the last hour."""
    assert parse({**ENDING, "end": "2026-11-16T12:00:00Z"}, now_us=NOW).kind == "cron"


def test_a_hash_whose_end_has_passed_is_refused_for_every_job() -> None:
    with pytest.raises(errors.ScheduleNeverFires) as refused:
        parse({**ENDING, "end": "2026-11-16T03:00:00Z"}, now_us=NOW)
    assert refused.value.pointer == "/schedule/end"


def test_without_an_end_to_blame_the_second_step_points_at_the_schedule() -> None:
    spec = parse({"cron": "0 H * * *", "exclude": ["2026-11-16/2199-12-31"]}, now_us=NOW)
    with pytest.raises(errors.ScheduleNeverFires) as refused:
        first_due_us(spec, JOB, now_us=NOW)
    assert refused.value.pointer == "/schedule"


def test_refused_jitter() -> None:
    with pytest.raises(errors.JitterTooLong) as refused:
        parse("*/5 * * * *", jitter="6m", now_us=NOW)
    assert refused.value.pointer == "/jitter"
    assert "a jitter of 6m is longer than the interval between two runs; at most 5m" in str(
        refused.value
    )
    with pytest.raises(errors.InvalidDuration) as unreadable:
        parse(CRON, jitter="soon", now_us=NOW)
    assert unreadable.value.pointer == "/jitter"


def test_a_jitter_as_long_as_the_interval_is_fine() -> None:
    assert parse("*/5 * * * *", jitter="5m", now_us=NOW).jitter_us == 5 * MINUTE


def test_a_jitter_is_held_against_the_shortest_interval() -> None:
    with pytest.raises(errors.JitterTooLong, match="1h"):
        parse("0 9,10,18 * * *", jitter="2h", now_us=NOW)


@pytest.mark.parametrize("now", ["2026-02-16T03:00", "2026-10-16T03:00", "2026-11-16T03:00"])
def test_a_jitter_is_accepted_or_refused_whatever_the_season(now: str) -> None:
    """In an overlap two runs are an hour apart; the jitter of the run is clamped there."""

    def parsed(cron: str) -> Spec:
        zone, now_us = "America/New_York", us(now)
        return parse(cron, timezone=zone, dst_overlap="both", jitter="2h", now_us=now_us)

    assert parsed("30 1 * * *").jitter_us == 2 * HOUR
    with pytest.raises(errors.JitterTooLong):
        parsed("30 1,2 * * *")


def test_the_grace_decides_whether_a_one_off_is_past() -> None:
    late = "2026-11-16T02:30Z"
    with pytest.raises(errors.ScheduleInPast):
        parse(late, now_us=NOW)
    spec = parse(late, now_us=NOW, grace_us=HOUR)
    assert first_due_us(spec, JOB, now_us=NOW, grace_us=HOUR) == us(late)


def test_a_leap_day_is_fine() -> None:
    assert first_due_us(parse("0 0 29 2 *", now_us=NOW), JOB, now_us=NOW) == us("2028-02-29")


@pytest.mark.parametrize(
    ("schedule", "kind", "expression"),
    [
        ("  0  9 * *  mon ", "cron", "0 9 * * MON"),
        ("@daily", "cron", "0 0 * * *"),
        ("every 90m", "every", "1h30m"),
        ({"every": "1h 30m"}, "every", "1h30m"),
        ("2027-01-01T09:00", "at", "2027-01-01T09:00:00"),
        ("2027-01-01T09:00+02:00", "at", "2027-01-01T07:00:00Z"),
        (
            "rrule:freq=daily;byhour=9",
            "rrule",
            "DTSTART:20261116T030001\nRRULE:FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        ),
        (
            "RRULE:FREQ=MINUTELY;BYHOUR=9",
            "rrule",
            "DTSTART:20261116T030001\nRRULE:FREQ=MINUTELY;BYHOUR=9;BYSECOND=0",
        ),
        (
            "RRULE:FREQ=MINUTELY;BYMINUTE=0,15",
            "rrule",
            "DTSTART:20261116T030001\nRRULE:FREQ=MINUTELY;BYMINUTE=0,15;BYSECOND=0",
        ),
        (
            "RRULE:FREQ=SECONDLY;BYHOUR=9",
            "rrule",
            "DTSTART:20261116T030001\nRRULE:FREQ=SECONDLY;BYHOUR=9",
        ),
        (
            {"rrule": "FREQ=DAILY;BYHOUR=9", "start": "2027-01-01T08:15"},
            "rrule",
            "DTSTART:20270101T081500\nRRULE:FREQ=DAILY;BYHOUR=9",
        ),
    ],
)
def test_a_spec_is_normalised(schedule: object, kind: str, expression: str) -> None:
    spec = parse(schedule, now_us=NOW)
    assert (spec.kind, spec.expression) == (kind, expression)


def test_a_spec_survives_the_store() -> None:
    spec = parse(
        {"cron": "H H * * *", "start": "2027-01-01", "exclude": ["2027-12-24/2027-12-26"]},
        timezone="Europe/London",
        dst_overlap="both",
        jitter="5m",
        now_us=NOW,
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec


INSTANTS = st.builds(
    lambda at_ms, offset: datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat()[:-6] + offset,
    st.integers(-86_400_000, 7_300_000_000_000),
    st.sampled_from(["", "Z", "+00:00", "-0330", "+14"]),
) | st.sampled_from(
    ["2030-01-01 00:00:00.1239+05:30", " 2030-01-01T00:00Z ", "every 5m", "0 9 * * 1", "2030-13-01"]
)


@given(INSTANTS, st.sampled_from(["UTC", "America/New_York"]))
def test_one_off_like_gives_the_same_result_as_parse(text: str, timezone: str) -> None:
    like = parse("2030-01-01T00:00:00Z", timezone=timezone, now_us=NOW)
    found = one_off_like(text, like, now_us=NOW)
    if found is not None:
        spec = parse(text, timezone=timezone, now_us=NOW)
        assert found == (spec, first_due_us(spec, UUID(int=1), now_us=NOW))


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({"at": "2030-01-01T00:00:00Z", "end": "2031-01-01"}, "2032-01-01T00:00:00Z"),
        ({"at": "2030-01-01T00:00:00Z", "start": "1970-01-01T00:00:00Z"}, "2032-01-01T00:00:00Z"),
        ("every 5m", "2032-01-01T00:00:00Z"),
        ("2030-01-01T00:00:00Z", "2032-01-01T00:00:00"),
        ("2030-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2030-01-01T00:00:00Z", "2199-12-31T23:59:59-05:00"),
    ],
)
def test_one_off_like_declines_other_schedules(schedule: object, text: str) -> None:
    assert one_off_like(text, parse(schedule, now_us=NOW), now_us=NOW) is None


def test_a_plain_time_is_like_another() -> None:
    like = parse("2030-01-01T00:00:00Z", now_us=NOW)
    assert one_off_like("2032-01-01T00:00:00+01:00", like, now_us=NOW) is not None
