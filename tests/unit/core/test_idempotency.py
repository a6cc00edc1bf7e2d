from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from wheelsched.core.idempotency import MAX_LENGTH, check_template, compile_template
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY
from wheelsched.errors import InvalidIdempotencyKey

JOB_ID = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")
NEW_YORK = "America/New_York"
SCHEDULED_US = 1_794_837_600_000_000  # 2026-11-16T14:00:00Z, 09:00 in New York


def rendered(template: str, scheduled_us: int = SCHEDULED_US, timezone: str = NEW_YORK) -> str:
    return compile_template(template).render(JOB_ID, scheduled_us, timezone)


def at(local: str, timezone: str) -> int:
    instant = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(timezone))
    return int(instant.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("{{job_id}}", "018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f"),
        ("{{scheduled_at}}", "2026-11-16T14:00:00Z"),
        ("{{scheduled_at_unix}}", "1794837600"),
        ("{{date}}", "2026-11-16"),
        ("{{week}}", "2026-W47"),
        ("{{month}}", "2026-11"),
        ("{{hour}}", "2026-11-16T09-0500"),
        ("report:{{date}}:a", "report:2026-11-16:a"),
        ("{{date}}{{month}}", "2026-11-162026-11"),
        ("{{ date }}", "2026-11-16"),
        ("constant", "constant"),
    ],
)
def test_a_placeholder_renders(template: str, key: str) -> None:
    assert rendered(template) == key


def test_the_default_is_the_job_and_the_second() -> None:
    key = "018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f:1794837600"
    assert rendered(DEFAULT_IDEMPOTENCY_KEY) == key


def test_runs_within_one_second_have_keys_of_their_own() -> None:
    assert rendered("{{scheduled_at_unix}}", SCHEDULED_US + 250_000) == "1794837600_250000"
    assert rendered("{{scheduled_at_unix}}", SCHEDULED_US + 7) == "1794837600_000007"
    assert rendered("{{scheduled_at}}", SCHEDULED_US + 7) == "2026-11-16T14:00:00_000007Z"


def test_calendar_fields_are_those_of_the_jobs_time_zone() -> None:
    new_year_in_utc = at("2026-12-31T19:00", NEW_YORK)
    assert rendered("{{date}}/{{month}}", new_year_in_utc) == "2026-12-31/2026-12"
    assert rendered("{{date}}", new_year_in_utc, "UTC") == "2027-01-01"
    assert rendered("{{scheduled_at}}", new_year_in_utc) == "2027-01-01T00:00:00Z"


def test_the_week_is_the_iso_week_around_new_year() -> None:
    assert rendered("{{week}}", at("2027-01-03T12:00", NEW_YORK)) == "2026-W53"
    assert rendered("{{week}}", at("2027-01-04T12:00", NEW_YORK)) == "2027-W01"
    assert rendered("{{week}}", at("2024-12-30T12:00", NEW_YORK)) == "2025-W01"


def test_the_two_copies_of_an_autumn_hour_differ() -> None:
    first = at("2026-11-01T01:30", NEW_YORK)
    assert rendered("{{hour}}", first) == "2026-11-01T01-0400"
    assert rendered("{{hour}}", first + 3_600_000_000) == "2026-11-01T01-0500"


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{jobid}}", "'jobid' is not a valid placeholder; must be one of: job_id, scheduled_at, "),
        ("{{}}", "'' is not a valid placeholder"),
        ("{{JOB_ID}}", "'JOB_ID' is not a valid placeholder"),
        ("{{job_id\n}}", "is not a valid placeholder"),
        ("{{job_id}", "are not a placeholder"),
        ("{{job_id", "are not a placeholder"),
        ("job_id}}", "are not a placeholder"),
        ("{job_id}", "are not a placeholder"),
        ("{{{job_id}}}", "are not a placeholder"),
        ("{{{{job_id}}}}", "are not a placeholder"),
        ("", "the template has 0 characters"),
        ("x" * 256, "the template has 256 characters; expected 1 to 255"),
        ("{{job_id}}" * 8, "a key would have up to 288 characters; at most 255 are allowed"),
        ("a b", "contains an invalid character"),
        ("a.b", "contains an invalid character"),
        ("a\r\nx-evil: 1", "contains an invalid character"),
        ("a\x00", "contains an invalid character"),
        ("a\x7f", "contains an invalid character"),
        ("é", "contains an invalid character"),
        ("\u202e", "contains an invalid character"),
    ],
)
def test_a_bad_template_is_refused_at_its_field(template: str, complaint: str) -> None:
    with pytest.raises(InvalidIdempotencyKey) as caught:
        compile_template(template)
    assert complaint in str(caught.value)
    assert caught.value.pointer == "/idempotency_key"


@pytest.mark.parametrize("template", ["constant", "{{job_id}}"])
def test_a_key_without_time_is_for_one_offs_only(template: str) -> None:
    assert check_template(template, is_recurring=False).render(JOB_ID, 0, "UTC")
    with pytest.raises(InvalidIdempotencyKey, match="gives every run the same key"):
        check_template(template, is_recurring=True)


def test_a_coarse_key_is_allowed() -> None:
    assert check_template("{{job_id}}:{{date}}", is_recurring=True).has_time


def test_the_widest_key_fits() -> None:
    widest = compile_template("{{hour}}" * 12 + "x" * 15)
    key = widest.render(JOB_ID, 0, "Africa/Monrovia")
    assert len(key) == MAX_LENGTH


@pytest.mark.parametrize("template", [None, 5, ["{{date}}"], {"a": 1}])
def test_a_template_is_text(template: object) -> None:
    with pytest.raises(InvalidIdempotencyKey) as refused:
        check_template(template, is_recurring=True)
    assert refused.value.pointer == "/idempotency_key"
