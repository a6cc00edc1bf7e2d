"""What people type as options."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from wheelsched.cli.written import (
    Address,
    now,
    read_address,
    read_instant,
    read_json,
    read_pairs,
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
def test_no_address(written: str) -> None:
    with pytest.raises(typer.BadParameter, match="write HOST:PORT"):
        read_address(written)


def test_an_instant_is_written_out_or_as_long_ago() -> None:
    assert read_instant("2026-03-08T09:30:00Z") == datetime(2026, 3, 8, 9, 30, tzinfo=UTC)
    ago = read_instant("2h")
    assert ago is not None
    assert timedelta(hours=1) < now() - ago < timedelta(hours=3)
    assert read_instant(None) is None


@pytest.mark.parametrize("written", ["yesterday", "2026-03-08T09:30:00", "2026-13-01T00:00:00Z"])
def test_no_instant(written: str) -> None:
    with pytest.raises(typer.BadParameter, match="write it with its offset"):
        read_instant(written)


def test_pairs() -> None:
    assert read_pairs(["x-team: a:b", "y:"], ":", "") == {"x-team": "a:b", "y": ""}
    with pytest.raises(typer.BadParameter, match="as team=a"):
        read_pairs(["=a"], "=", "team=a")


def test_json_is_typed_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"a": 1}')
    assert read_json('{"a": 1}') == read_json(f"@{file}") == {"a": 1}
    with pytest.raises(typer.BadParameter, match="cannot be read"):
        read_json(f"@{tmp_path}/nothing")
