"""The options of a job as the part of a document that they write."""

import msgspec
import pytest
import typer

from wheelsched.cli.fields import document_of


def test_what_is_not_typed_is_not_written() -> None:
    typed = {"timeout": "9s", "method": "PUT", "batch": None, "tag": [], "header": ["x-team: a"]}
    assert document_of(typed) == {
        "timeout": "9s",
        "target": {"method": "PUT", "headers": {"x-team": "a"}},
    }


@pytest.mark.parametrize("written", ["@daily", '{"every": "5m", "end": "2100-01-01T00:00:00Z"}'])
def test_a_schedule_is_text_or_an_object(written: str) -> None:
    encoded = msgspec.json.encode(document_of({"schedule": written}))
    expected = msgspec.json.decode(written) if written.startswith("{") else written
    assert msgspec.json.decode(encoded) == {"schedule": expected}


@pytest.mark.parametrize("written", ["{bad", ' {"every": "5m"', '{"every": "5m", "every": "6m"}'])
def test_half_an_object_is_no_schedule(written: str) -> None:
    with pytest.raises(typer.BadParameter, match=r'write JSON, as .*"every"'):
        document_of({"schedule": written})
