"""The options of a job as the part of a document that they write."""

from datetime import datetime, timedelta

import msgspec
import pytest
import typer
from msgspec import Struct

from wheelsched.cli.fields import FIELDS, document_of, written_over
from wheelsched.cli.written import now
from wheelsched.wire.job import (
    DstDocument,
    JobDocument,
    MisfireDocument,
    OverlapDocument,
    RetryDocument,
    TargetDocument,
)


def test_what_is_not_typed_is_not_written() -> None:
    typed = {"timeout": "9s", "method": "PUT", "batch": None, "tag": [], "header": ["x-team: a"]}
    assert document_of(typed) == {
        "timeout": "9s",
        "target": {"method": "PUT", "headers": {"x-team": "a"}},
    }


def test_a_tag_or_a_header_without_a_value_is_taken_away() -> None:
    typed = {"tag": ["team=", "tier=1"], "header": ["x-team:", "x-tier: 1"]}
    assert document_of(typed) == {
        "tags": {"team": None, "tier": "1"},
        "target": {"headers": {"x-team": None, "x-tier": "1"}},
    }


def test_options_are_written_over_a_document() -> None:
    file = {
        "name": "a",
        "target": {"url": "u", "headers": {"x-team": "a", "x-tier": "1"}},
        "payload": {"a": 1},
        "tags": ["of", "another", "type"],
    }
    typed = {"header": ["x-team:"], "payload": "[]", "tag": ["team=a", "tier="]}
    written = written_over(file, document_of(typed))
    assert msgspec.json.decode(msgspec.json.encode(written)) == {
        "name": "a",
        "target": {"url": "u", "headers": {"x-tier": "1"}},
        "payload": [],
        "tags": {"team": "a"},
    }
    assert file["target"] == {"url": "u", "headers": {"x-team": "a", "x-tier": "1"}}


def test_every_field_of_a_job_has_an_option() -> None:
    parts: dict[str, type[Struct]] = {
        "target": TargetDocument,
        "misfire": MisfireDocument,
        "overlap": OverlapDocument,
        "retry": RetryDocument,
        "dst": DstDocument,
    }
    whole = set(JobDocument.__struct_fields__) - parts.keys() - {"name"}
    inner = {(name, field) for name, part in parts.items() for field in part.__struct_fields__}
    assert {field.path for field in FIELDS.values()} == {(name,) for name in whole} | inner


def test_the_waits_between_attempts_are_options() -> None:
    typed = {"backoff": "linear", "backoff_initial": "2s", "backoff_max": "1m"}
    assert document_of(typed) == {"retry": {"backoff": "linear", "initial": "2s", "max": "1m"}}


def test_a_schedule_that_is_relative_to_now_is_an_instant() -> None:
    before = now()
    due = datetime.fromisoformat(document_of({"schedule": "in 5m"})["schedule"])
    assert before < due - timedelta(minutes=5) < now() + timedelta(milliseconds=2)
    assert due.microsecond % 1_000 == 0


@pytest.mark.parametrize("written", ["@daily", '{"every": "5m", "end": "2100-01-01T00:00:00Z"}'])
def test_a_schedule_is_text_or_an_object(written: str) -> None:
    encoded = msgspec.json.encode(document_of({"schedule": written}))
    expected = msgspec.json.decode(written) if written.startswith("{") else written
    assert msgspec.json.decode(encoded) == {"schedule": expected}


@pytest.mark.parametrize("written", ["{bad", ' {"every": "5m"', '{"every": "5m", "every": "6m"}'])
def test_half_an_object_is_no_schedule(written: str) -> None:
    with pytest.raises(typer.BadParameter, match=r'write JSON, as .*"every"'):
        document_of({"schedule": written})
