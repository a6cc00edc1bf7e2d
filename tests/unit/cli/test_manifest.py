"""Manifests compared with the registered jobs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.cli.manifest import (
    differences,
    merge_patch,
    patch_of,
    plain,
    raise_problems,
    read_entries,
    read_one,
)
from wheelsched.core.model import JobState
from wheelsched.errors import InvalidDocument
from wheelsched.jobs.fields import normalize_document
from wheelsched.jobs.merge import merge
from wheelsched.wire.job import JobAnswer, JobDocument

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def read_documents(path: str) -> list[JobDocument]:
    """The jobs of a valid file."""
    entries = read_entries(path)
    assert not any(entry.errors or entry.file_errors for entry in entries)
    return [entry.document for entry in entries if entry.document is not None]


def document(**fields: Any) -> JobDocument:
    written = {"name": "a", "schedule": "@daily", "target": {"url": "https://example.org/"}}
    return msgspec.json.decode(msgspec.json.encode(written | fields), type=JobDocument)


def registered(**fields: Any) -> JobAnswer:
    """The answer of the API for a document."""
    written = normalize_document(document(**fields))
    return JobAnswer(
        job_id=uuid4(),
        state=JobState.ACTIVE,
        version=1,
        created_at=NOW,
        updated_at=NOW,
        paused_at=None,
        next_run_at=None,
        **{name: getattr(written, name) for name in JobDocument.__struct_fields__},
    )


def changed(before: JobAnswer, after: JobDocument) -> list[str]:
    return [each.field for each in differences(before, after)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"timeout": "2m"},
        {"timezone": "UTC"},
        {"misfire": {"policy": "once"}},
        {"retry": {"max_attempts": 4, "initial": "1000ms"}},
        {"payload": None},
        {"tags": {}},
    ],
)
def test_an_explicit_default_is_not_a_difference(fields: dict[str, Any]) -> None:
    assert changed(registered(), document(**fields)) == []
    assert changed(registered(**fields), document()) == []


def test_every_changed_field_is_listed() -> None:
    after = document(
        schedule="@hourly",
        target={"url": "https://example.org/", "headers": {"x": "1"}},
        payload={"a": 1},
        retry={"max_attempts": 9},
        tags={"team": "a"},
    )
    assert changed(registered(), after) == [
        *("payload", "retry.max_attempts", "schedule", "tags.team", "target.headers")
    ]


def test_a_removed_field_is_reset_to_its_default() -> None:
    before = registered(timeout="9s", tags={"team": "a", "tier": "1"})
    patch = patch_of(before, document(tags={"team": "a"}))
    assert patch == {"timeout": "2m", "tags": {"tier": None}}


TREES = st.recursive(
    st.integers() | st.text() | st.booleans(),
    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
    max_leaves=10,
)


@given(TREES, TREES)
def test_a_patch_turns_one_document_into_the_other(before: Any, after: Any) -> None:
    patch = msgspec.json.encode(merge_patch(before, after))
    merged = merge(msgspec.Raw(msgspec.json.encode(before)), msgspec.Raw(patch))
    assert msgspec.json.decode(merged) == after


PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1) | st.floats(-1, 1) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.text("ab", max_size=1), inner) | st.lists(inner, max_size=2),
    max_leaves=5,
)


def as_json(tree: Any) -> bytes:
    """In Python, 1 equals True and 1.0."""
    return msgspec.json.encode(tree, order="sorted")


@given(PAYLOADS, PAYLOADS)
def test_a_payload_is_one_value(before: Any, after: Any) -> None:
    patch = patch_of(registered(payload=before), document(payload=after))
    expected = {} if as_json(before) == as_json(after) else {"payload": after}
    assert as_json(patch) == as_json(expected)


def test_a_schedule_is_one_value() -> None:
    before = registered(schedule={"every": "5m", "end": "2100-01-01T00:00:00Z"})
    assert patch_of(before, document(schedule={"every": "5m"})) == {"schedule": {"every": "5m"}}


def test_times_in_a_file_stay_text(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("- name: a\n  schedule: 2027-01-01T09:00:00Z\n  target: {url: 'https://a.b/'}")
    (read,) = read_documents(str(file))
    assert plain(read)["schedule"] == "2027-01-01T09:00:00Z"


@pytest.mark.parametrize("schedule", ["in 5m", "{at: in 5m}"])
def test_relative_times_in_a_file_are_rejected(tmp_path: Path, schedule: str) -> None:
    job = f"- name: a\n  schedule: {schedule}\n  target: {{url: 'https://a.b/'}}"
    (said,) = problems(tmp_path / "jobs.yaml", job)
    assert "job 'a': /schedule: " in said
    assert "write an absolute time" in said


def test_a_file_may_hold_one_job_several_or_lists(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    one = "name: {}\nschedule: '@daily'\ntarget: {{url: 'https://a.b/'}}\n"
    file.write_text(one.format("a") + "---\n" + one.format("b"))
    assert [each.name for each in read_documents(str(file))] == ["a", "b"]
    with pytest.raises(typer.BadParameter, match="contains 2 jobs, expected one"):
        read_one(str(file))
    file.write_text(one.format("a"))
    assert read_one(str(file))["name"] == "a"


def problems(file: Path, text: str) -> list[str]:
    """The problems of a file, without its name."""
    file.write_text(text)
    entries = read_entries(str(file))
    found = [line for one in entries for line in one.lines((*one.errors, *one.file_errors))]
    return [line.removeprefix(f"{file}:") for line in found]


def test_a_list_may_be_under_the_key_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    job = "{{name: {}, schedule: '@daily', target: {{url: 'https://a.b/'}}}}"
    file.write_text(
        f"jobs:\n  - {job.format('a')}\n  - {job.format('b')}\n---\n{job.format('c')}\n"
    )
    assert [each.name for each in read_documents(str(file))] == ["a", "b", "c"]
    file.write_text("jobs: []\nversion: 1\n")
    with pytest.raises(typer.BadParameter, match="unknown field 'version' next to jobs, line 2"):
        read_entries(str(file))


def test_every_invalid_job_is_reported_with_its_line(tmp_path: Path) -> None:
    said = problems(
        tmp_path / "jobs.yaml",
        """\
jobs:
- name: right
  schedule: "@daily"
  target: {url: "https://a.b/"}
- name: wrong
  target:
    url: "https://a.b/"
    batch: many
  schedule: "@daily"
- schedule: "@daily"
  target: {url: "https://a.b/"}
- just text
- name: right
  schedule: "@daily"
  target: {url: "https://a.b/"}
""",
    )
    starts = [
        "8: job 'wrong': /target/batch: ",
        "10: job 3: /name: ",
        " job 4: /: ",
        "13: job 'right': /name: ",
    ]
    assert len(said) == len(starts)
    assert all(line.startswith(start) for line, start in zip(said, starts, strict=True))


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("cron: '@daily'", "schedule"),
        ("every: 5m", "schedule"),
        ("url: 'https://a.b'", "target.url"),
        ("headers: {}", "target.headers"),
        ("retries: 3", "retry.max_attempts"),
        ("time_zone: UTC", "timezone"),
        ("tiemout: 3s", "timeout"),
        ("labels: {}", "tags"),
    ],
)
def test_an_unknown_field_gets_a_suggestion(tmp_path: Path, field: str, meant: str) -> None:
    job = "name: a\nschedule: '@daily'\ntarget: {url: 'https://a.b/'}\n"
    (said,) = problems(tmp_path / "jobs.yaml", f"{job}{field}\n")
    assert said.startswith("4: job 'a': /")
    assert said.endswith(f"did you mean '{meant}'?")


def test_an_unknown_field_without_a_suggestion_is_rejected(tmp_path: Path) -> None:
    job = "name: a\nschedule: '@daily'\ntarget: {url: 'https://a.b/', cron: 1}\nqqq: 1\n"
    for line in problems(tmp_path / "jobs.yaml", job):
        assert "did you mean" not in line


def test_only_the_first_hundred_problems_are_shown() -> None:
    raise_problems([])
    with pytest.raises(InvalidDocument) as raised:
        raise_problems([f"problem {number}" for number in range(250)])
    lines = str(raised.value).splitlines()
    assert lines[0] == "nothing was changed; found 250 problems:"
    assert (lines[100], lines[101], len(lines)) == ("problem 99", "and 150 more", 102)


@pytest.mark.parametrize("name", ["[a]", "{a: 1}", "null", "7"])
def test_names_that_are_not_text_are_not_the_same_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "jobs.yaml"
    job = f"- {{name: {name}, schedule: '@daily', target: {{url: 'https://example.org/'}}}}\n"
    path.write_text(job * 2)
    for entry in read_entries(str(path)):
        assert len(entry.errors) == 1
        assert entry.file_errors == ()
