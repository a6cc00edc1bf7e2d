"""A document with several problems: all are reported at once, each with its pointer."""

from typing import Any

import pytest
from tests.api import Answered, Api, document

BAD: dict[str, Any] = {
    "cron": "0 9 * * *",
    "colour": "red",
    "schedule": "61 * * * *",
    "timezone": "Europe/Atlantis",
    "timeout": 5,
    "priority": 500,
    "jitter": "soon",
    "dst": {"gap": "leap", "overlap": 7, "holidays": True},
    "misfire": {"polcy": "all", "grace": "long"},
    "retry": "often",
    "tags": {"a:b": "c", "team": 1, "note": "x\ny"},
    "target": {"url": "ftp://example.org", "method": "GET", "headers": {"a b": "c", "host": "d"}},
    "idempotency_key": "{{password}}",
}
POINTERS = {
    "/cron",
    "/colour",
    "/schedule",
    "/timezone",
    "/timeout",
    "/priority",
    "/jitter",
    "/dst/gap",
    "/dst/overlap",
    "/dst/holidays",
    "/misfire/polcy",
    "/misfire/grace",
    "/retry",
    "/tags/a:b",
    "/tags/team",
    "/tags/note",
    "/target/url",
    "/target/method",
    "/target/headers/a b",
    "/target/headers/host",
    "/idempotency_key",
}


def check(answer: Answered) -> None:
    assert answer.status == 422
    assert sorted(answer.pointers) == sorted(POINTERS)


async def test_unknown_fields_types_and_values_are_reported_together(api: Api) -> None:
    for path in ("/jobs", "/preview"):
        check(await api.post(path, document(**BAD)))


async def test_a_patch_reports_all_of_its_problems(api: Api) -> None:
    job = await api.create()
    check(await api.call("PATCH", f"/jobs/{job['job_id']}", BAD))


async def test_every_item_of_a_bulk_reports_all_of_its_problems(api: Api) -> None:
    bulk = await api.post("/jobs/bulk", [document(), document(name="b", **BAD)])
    good, bad = bulk.body["items"]
    assert "job_id" in good
    assert sorted(error["pointer"] for error in bad["problem"]["errors"]) == sorted(POINTERS)


async def test_missing_fields_do_not_hide_other_problems(api: Api) -> None:
    refused = await api.post("/jobs", {"timezone": "Mars", "retry": {"max_attempts": 0}})
    expected = {"/name", "/schedule", "/target", "/timezone", "/retry/max_attempts"}
    assert set(refused.pointers) == expected
    refused = await api.post("/jobs", {"name": "", "schedule": "x", "target": {"batch": 0}})
    assert set(refused.pointers) == {"/name", "/schedule", "/target/url", "/target/batch"}


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"schedule": "61 * * * *", "timezone": "Mars"}, ["/schedule", "/timezone"]),
        (
            {"schedule": {"cron": "61 * * * *", "start": "x", "end": "y", "exclude": ["z", "2"]}},
            [
                "/schedule/cron",
                "/schedule/end",
                "/schedule/exclude/0",
                "/schedule/exclude/1",
                "/schedule/start",
            ],
        ),
        (
            {"schedule": {"cron": "@daily", "color": 1, "exclud": []}, "timezone": "Mars"},
            ["/schedule/color", "/schedule/exclud", "/timezone"],
        ),
        ({"schedule": "0 0 30 2 *", "priority": 101}, ["/priority", "/schedule"]),
        ({"schedule": "0 0 30 2 *", "dst": {"gap": "x"}}, ["/dst/gap", "/schedule"]),
        ({"schedule": "every 5m", "jitter": "6m", "timezone": "Mars"}, ["/jitter", "/timezone"]),
        # Whether a local time has passed depends on the zone, which nobody knows here.
        ({"schedule": "2001-01-01T00:00:00", "timezone": "Mars"}, ["/timezone"]),
        ({"schedule": "2001-01-01T00:00:00", "timezone": 5}, ["/timezone"]),
        ({"schedule": "0 0 30 2 *", "colour": 1}, ["/colour", "/schedule"]),
    ],
)
async def test_a_schedule_problem_does_not_hide_others(
    api: Api, changes: dict[str, Any], pointers: list[str]
) -> None:
    refused = await api.post("/jobs", document(**changes))
    assert sorted(refused.pointers) == pointers


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"cron": "0 9 * * *"}, "unknown field 'cron'; did you mean 'schedule'?"),
        ({"every": "5m"}, "unknown field 'every'; did you mean 'schedule'?"),
        ({"schedul": "x"}, "unknown field 'schedul'; did you mean 'schedule'?"),
        ({"Schedule": "x"}, "unknown field 'Schedule'; did you mean 'schedule'?"),
        ({"url": "x"}, "unknown field 'url'; did you mean 'target.url'?"),
        ({"tz": "x"}, "unknown field 'tz'; did you mean 'timezone'?"),
        ({"retries": 3}, "unknown field 'retries'; did you mean 'retry.max_attempts'?"),
        ({"misfire": {"polcy": "all"}}, "unknown field 'polcy'; did you mean 'policy'?"),
        (
            {"dst": {"holidays": True}},
            "unknown field 'holidays'; known fields: gap, overlap",
        ),
        (
            {"schedule": {"crom": "@daily"}},
            "unknown field 'crom'; did you mean 'cron'?",
        ),
    ],
)
async def test_an_unknown_field_gets_a_suggestion(
    api: Api, fields: dict[str, Any], hint: str
) -> None:
    refused = await api.post("/jobs", document(**fields))
    assert hint in [error["detail"] for error in refused.body["errors"]]


async def test_a_type_mismatch_is_described_in_plain_english(api: Api) -> None:
    refused = await api.post("/jobs", document(timeout=5, retry=[], priority=1.5, tags={"a": None}))
    assert {error["pointer"]: error["detail"] for error in refused.body["errors"]} == {
        "/timeout": "expected a string, got an integer",
        "/retry": "expected an object, got an array",
        "/priority": "expected an integer, got a number",
        "/tags/a": "expected a string, got null",
    }
