"""Job options and the partial document they describe."""

from datetime import datetime, timedelta

import msgspec
import pytest
import typer

from wheelsched.cli.job_options import document_of, overlay
from wheelsched.cli.option_parsers import now


def test_omitted_options_write_nothing() -> None:
    typed = {"timeout": "9s", "method": "PUT", "batch": None, "tag": [], "header": ["x-team: a"]}
    assert document_of(typed) == {
        "timeout": "9s",
        "target": {"method": "PUT", "headers": {"x-team": "a"}},
    }


def test_an_empty_tag_or_header_is_removed() -> None:
    typed = {"tag": ["team=", "tier=1"], "header": ["x-team:", "x-tier: 1"]}
    assert document_of(typed) == {
        "tags": {"team": None, "tier": "1"},
        "target": {"headers": {"x-team": None, "x-tier": "1"}},
    }


def test_options_override_a_document() -> None:
    file = {
        "name": "a",
        "target": {"url": "u", "headers": {"x-team": "a", "x-tier": "1"}},
        "payload": {"a": 1},
        "tags": ["of", "another", "type"],
    }
    typed = {"header": ["x-team:"], "payload": "[]", "tag": ["team=a", "tier="]}
    written = overlay(file, document_of(typed))
    assert msgspec.json.decode(msgspec.json.encode(written)) == {
        "name": "a",
        "target": {"url": "u", "headers": {"x-tier": "1"}},
        "payload": [],
        "tags": {"team": "a"},
    }
    assert file["target"] == {"url": "u", "headers": {"x-team": "a", "x-tier": "1"}}


def test_the_waits_between_attempts_are_options() -> None:
    typed = {"backoff": "linear", "backoff_initial": "2s", "backoff_max": "1m"}
    assert document_of(typed) == {"retry": {"backoff": "linear", "initial": "2s", "max": "1m"}}


def test_a_schedule_that_is_relative_to_now_is_an_instant() -> None:
    before = now()
    due = datetime.fromisoformat(document_of({"schedule": "in 5m"})["schedule"])
    assert before <= due - timedelta(minutes=5) < now() + timedelta(milliseconds=2)
    assert due.microsecond % 1_000 == 0


@pytest.mark.parametrize("written", ["@daily", '{"every": "5m", "end": "2100-01-01T00:00:00Z"}'])
def test_a_schedule_is_text_or_an_object(written: str) -> None:
    encoded = msgspec.json.encode(document_of({"schedule": written}))
    expected = msgspec.json.decode(written) if written.startswith("{") else written
    assert msgspec.json.decode(encoded) == {"schedule": expected}


@pytest.mark.parametrize("written", ["{bad", ' {"every": "5m"', '{"every": "5m", "every": "6m"}'])
def test_a_truncated_object_is_rejected(written: str) -> None:
    with pytest.raises(typer.BadParameter, match=r'expected JSON, e.g. .*"every"'):
        document_of({"schedule": written})
