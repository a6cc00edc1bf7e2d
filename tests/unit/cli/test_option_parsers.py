"""Parsing of option values."""

import re
from datetime import UTC, datetime, timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import typer

from wheelsched.cli.option_parsers import (
    Address,
    now,
    read_address,
    read_instant,
    read_optional_instant,
    read_pairs,
    read_payload,
    read_tags,
)


@pytest.mark.parametrize(
    ("written", "address", "is_loopback"),
    [
        ("127.0.0.1:8420", Address("127.0.0.1", 8420), True),
        ("localhost:1", Address("localhost", 1), True),
        ("[::1]:8420", Address("::1", 8420), True),
        ("8420", Address("127.0.0.1", 8420), True),
        ("0.0.0.0:8420", Address("0.0.0.0", 8420), False),
        ("scheduler.example:80", Address("scheduler.example", 80), False),
    ],
)
def test_an_address(written: str, address: Address, is_loopback: bool) -> None:
    assert read_address(written) == address
    assert read_address(written).is_loopback is is_loopback


@pytest.mark.parametrize("written", ["", "localhost", "localhost:", "a:70000", "a:-1", "a:b"])
def test_an_invalid_address_is_rejected(written: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected HOST:PORT"):
        read_address(written)


def test_an_instant_is_written_out_or_as_long_ago() -> None:
    assert read_instant("2026-03-08T09:30:00Z") == datetime(2026, 3, 8, 9, 30, tzinfo=UTC)
    assert read_optional_instant(None) is None


@pytest.mark.parametrize(
    ("written", "hours"),
    [("2h", -2), ("2h ago", -2), ("1h60m  ago", -2), ("now", 0), (" now ", 0), ("in 2h", 2)],
)
def test_an_instant_is_relative_to_now(written: str, hours: int) -> None:
    expected = now() + timedelta(hours=hours)
    assert abs(read_instant(written) - expected) < timedelta(hours=1)


@pytest.mark.parametrize(
    "written",
    [
        *("yesterday", "2026-03-08T09:30:00", "2026-13-01T00:00:00Z", "", "in", "ago", "5m2h"),
        *("in 5m ago", "in now", "later", "200000w", "in 600000w"),
    ],
)
def test_an_invalid_time_is_rejected(written: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected ISO 8601 with an offset"):
        read_instant(written)


def test_a_tag_is_name_equals_or_colon_value() -> None:
    written = ["team=a", "tier:1", "url=http://a:1", "no-value=", "of: b=c"]
    assert read_tags(written) == {
        "team": "a",
        "tier": "1",
        "url": "http://a:1",
        "no-value": "",
        "of": "b=c",
    }
    assert read_tags(None) == {}
    for bad in ("team", "=a", " :a"):
        with pytest.raises(
            typer.BadParameter, match=r"invalid tag .*; expected NAME=VALUE, e.g. team=a"
        ):
            read_tags([bad])


def test_pairs() -> None:
    assert read_pairs(["x-team: a:b", "y:"], ":", "") == {"x-team": "a:b", "y": ""}
    with pytest.raises(typer.BadParameter, match=r"e\.g\. team=a"):
        read_pairs(["=a"], "=", "team=a")


@pytest.mark.parametrize("text", ['{"a": 1.50, "b" : [ ]}', "12345678901234567890123", '"ü"'])
def test_a_payload_is_sent_as_it_is_typed_or_in_a_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "payload.json"
    file.write_text(text, "utf-8")
    assert bytes(read_payload(text)) == bytes(read_payload(f"@{file}")) == text.encode()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{", "expected JSON, e.g."),
        ("", "empty text"),
        ('{"a": {"b": NaN}}', "/a/b: NaN is not a valid JSON number; expected JSON"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('"\udc80"', "invalid UTF-8"),
        ("@/nowhere/at/all", "cannot read"),
    ],
)
def test_an_invalid_payload_is_rejected(written: str, says: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(says)):
        read_payload(written)


def test_unreadable_stdin_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\xff"), "utf-8"))
    with pytest.raises(typer.BadParameter, match="cannot read -"):
        read_payload("@-")
