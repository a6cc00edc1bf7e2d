"""Warnings about expressions that other schedulers, or many people, read differently."""

import pytest
from tests.unit.schedule.due import JOB, spec_of, us

from wheelsched.schedule.dialects import dialect_warnings
from wheelsched.schedule.explain import explain

NOW = "2026-11-16T03:00"


def warnings(schedule: object) -> tuple[str, ...]:
    return dialect_warnings(spec_of(schedule, after=NOW))


@pytest.mark.parametrize(
    ("weekdays", "here", "in_quartz"),
    [
        ("2-6", "Tuesday through Saturday", "Monday through Friday"),
        ("1", "Monday", "Sunday"),
        ("7", "Sunday", "Saturday"),
        ("2,4", "Tuesday and Thursday", "Monday and Wednesday"),
        ("6#3", "the third Saturday", "the third Friday"),
        ("6L", "the last Saturday", "the last Friday"),
        ("1/2", "Monday, Wednesday, Friday and Sunday", "Tuesday, Thursday, Saturday and Sunday"),
    ],
)
def test_numbers_of_weekdays_after_a_question_mark(
    weekdays: str, here: str, in_quartz: str
) -> None:
    assert warnings(f"0 0 12 ? * {weekdays}") == (
        (
            f"day of week {weekdays} is {here} here, where Sunday is 0 or 7; in Quartz, where "
            f"'?' comes from, Sunday is 1 and it is {in_quartz}: use names, e.g. MON"
        ),
    )


@pytest.mark.parametrize(
    "cron",
    [
        "0 0 12 ? * MON-FRI",
        "0 0 12 ? * 0",
        "0 0 12 ? * */2",
        "0 0 12 ? * H",
        "0 12 * * 2",
        "0 0 12 ? * *,7",
        "0 0 12 ? * 1-7",
    ],
)
def test_weekdays_that_mean_the_same_everywhere(cron: str) -> None:
    assert warnings(cron) == ()


@pytest.mark.parametrize(
    ("cron", "starred", "spelt"),
    [
        ("0 0 */2 * 1", "*/2", "1-31/2"),
        ("0 0 */2 * FRI#1", "*/2", "1-31/2"),
        ("0 0 13 * */3", "*/3", "0-6/3"),
        ("0 0 */5 * */3", "*/5", "1-31/5 and 0-6/3"),
    ],
)
def test_a_step_of_a_star_together_with_the_other_day(cron: str, starred: str, spelt: str) -> None:
    assert warnings(cron) == (
        (
            f"day of month and day of week must both match, because {starred} begins with a "
            "star, as in Vixie cron; Kubernetes runs it when either matches: for that, "
            f"write {spelt}"
        ),
    )


@pytest.mark.parametrize("cron", ["0 0 */2 * *", "0 0 */2 * ?", "0 0 */1 * 1", "0 0 1-31/2 * 1"])
def test_a_step_that_means_the_same_everywhere(cron: str) -> None:
    assert warnings(cron) == ()


def test_the_spelling_in_the_warning_is_what_kubernetes_means() -> None:
    assert explain_words("0 0 1-31/2 * 1").endswith("of the month or on Monday")


def explain_words(cron: str) -> str:
    return explain(spec_of(cron, after=NOW), JOB, now_us=us(NOW)).words


@pytest.mark.parametrize(
    ("cron", "spelt"), [("0 0 1-7 * 1", "MON#1"), ("0 0 8-14 * TUE,WED", "TUE#2,WED#2")]
)
def test_the_first_monday_written_as_seven_days(cron: str, spelt: str) -> None:
    (warning,) = warnings(cron)
    assert warning.endswith(
        f"if both must match, write '*' as day of month and {spelt} as day of week"
    )


@pytest.mark.parametrize("cron", ["0 0 13 * 5", "0 0 1-7 * *", "0 0 1-8 * 1", "0 0 2-8 * 1"])
def test_days_that_are_not_meant_as_an_nth_weekday(cron: str) -> None:
    assert warnings(cron) == ()


def test_a_day_that_some_months_do_not_have() -> None:
    assert warnings("0 0 31 * *") == (
        (
            "it does not run in February, April, June, September and November, which have no day "
            "31; for the last day of each month, write L"
        ),
    )
    assert warnings("0 0 29 * *")[0].startswith(
        "it does not run in February except in leap years, which has no day 29"
    )


@pytest.mark.parametrize(
    "cron", ["0 0 31 1,3 *", "0 0 31,L * *", "0 0 28-31 * *", "0 0 31 * 1", "0 0 H * *"]
)
def test_days_of_every_month(cron: str) -> None:
    assert warnings(cron) == ()


@pytest.mark.parametrize("schedule", ["every 5m", "2027-01-01T09:00", "RRULE:FREQ=DAILY"])
def test_other_kinds_have_no_dialects(schedule: str) -> None:
    assert warnings(schedule) == ()


def test_explain_warns_of_dialects_and_hashes() -> None:
    spec = spec_of("0 0 12 ? * 2-6", after=NOW)
    assert explain(spec, JOB, now_us=us(NOW)).warnings == dialect_warnings(spec)
    hashed = explain(spec_of("H H * * *", after=NOW), JOB, now_us=us(NOW)).warnings
    assert hashed == ("the value of H depends on the job's id, so another job runs at other times",)
