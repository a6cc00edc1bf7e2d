"""The options of a job as the part of a document that they write."""

import msgspec
import pytest
import typer

from wheelsched.cli.fields import document_of, written_over


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


@pytest.mark.parametrize("written", ["@daily", '{"every": "5m", "end": "2100-01-01T00:00:00Z"}'])
def test_a_schedule_is_text_or_an_object(written: str) -> None:
    encoded = msgspec.json.encode(document_of({"schedule": written}))
    expected = msgspec.json.decode(written) if written.startswith("{") else written
    assert msgspec.json.decode(encoded) == {"schedule": expected}


@pytest.mark.parametrize("written", ["{bad", ' {"every": "5m"', '{"every": "5m", "every": "6m"}'])
def test_half_an_object_is_no_schedule(written: str) -> None:
    with pytest.raises(typer.BadParameter, match=r'write JSON, as .*"every"'):
        document_of({"schedule": written})
