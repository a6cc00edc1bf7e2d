"""Parsers of option values.

Invariant: an invalid value is a usage error that shows what would be valid.
"""

import re
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

import typer
from msgspec import Raw

from wheelsched.clock import SystemClock
from wheelsched.errors import InvalidDuration, InvalidJson
from wheelsched.values.duration import parse_duration
from wheelsched.wire.strict import check_json

MAX_FILE: Final = 16 << 20


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_address(text: str) -> Address:
    """HOST:PORT, [HOST]:PORT, or a port alone."""
    host, _, port = text.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number <= 65_535:
        raise typer.BadParameter(
            f"invalid address {text!r}; expected HOST:PORT, e.g. 127.0.0.1:8420"
        )
    return Address(host.strip("[]") or "127.0.0.1", number)


RELATIVE: Final = re.compile(r"(?P<later>in +)?(?P<duration>\w+)(?P<ago> +ago)?", re.ASCII)


def read_instant(text: str) -> datetime:
    """An ISO 8601 time with an offset, or one relative to now: now, 2h, 2h ago, in 5m."""
    instant = _read_relative(text.strip())
    if instant is None:
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            instant = None
    if instant is None or instant.tzinfo is None:
        raise typer.BadParameter(
            f"invalid time {text!r}; expected ISO 8601 with an offset, e.g. "
            "2026-03-08T09:30:00Z, or a time relative to now: now, 2h ago, in 5m"
        )
    return instant


def read_optional_instant(text: str | None) -> datetime | None:
    """Like `read_instant`, for an option that may be omitted."""
    return None if text is None else read_instant(text)


def _read_relative(text: str) -> datetime | None:
    """A time relative to now; without a direction it is in the past."""
    if text == "now":
        return now()
    found = RELATIVE.fullmatch(text)
    if found is None or (found["later"] and found["ago"]):
        return None
    try:
        distance = timedelta(microseconds=parse_duration(found["duration"]))
        return now() + distance if found["later"] else now() - distance
    except (InvalidDuration, OverflowError):
        return None


def now() -> datetime:
    """The current time by this machine's clock."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=SystemClock.wall_us())


def read_pairs(texts: list[str], separator: str, example: str) -> dict[str, str]:
    """Repeated options of the form NAME, separator, VALUE."""
    pairs = {}
    for each in texts:
        name, found, value = each.partition(separator)
        if not found or not name.strip():
            raise typer.BadParameter(f"invalid value {each!r}; expected e.g. {example}")
        pairs[name.strip()] = value.strip()
    return pairs


def read_tags(texts: list[str] | None) -> dict[str, str]:
    """Tags as NAME=VALUE, or as in REST NAME:VALUE; names contain no colon."""
    tags = {}
    for each in texts or []:
        found = re.fullmatch(r"([^=:]+)[=:](.*)", each, re.DOTALL)
        if found is None or not found[1].strip():
            raise typer.BadParameter(f"invalid tag {each!r}; expected NAME=VALUE, e.g. team=a")
        tags[found[1].strip()] = found[2].strip()
    return tags


def read_payload(option: str) -> Raw:
    """JSON, or @FILE; @- is stdin."""
    text = read_text(option[1:]) if option.startswith("@") else option
    return read_json(text, example='\'{"report": "weekly"}\', or @FILE')


def read_json(text: str, *, example: str) -> Raw:
    """Strictly checked JSON, byte for byte."""
    body = text.encode("utf-8", "surrogateescape")  # invalid UTF-8 is rejected below
    try:
        check_json(body)
    except InvalidJson as error:
        place = f"{error.pointer}: " if error.pointer else ""
        raise typer.BadParameter(f"{place}{error}; expected JSON, e.g. {example}") from error
    return Raw(body)


def read_text(path: str) -> str:
    """The text of a file of at most `MAX_FILE` characters; - is stdin."""
    try:
        if path == "-":
            text = sys.stdin.read(MAX_FILE + 1)
        else:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(MAX_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from error
    if len(text) > MAX_FILE:
        raise typer.BadParameter(f"{path} exceeds {MAX_FILE:,} characters; split it")
    return text
