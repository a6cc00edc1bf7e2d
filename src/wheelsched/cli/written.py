"""What people type as options, as the program needs it.

Invariant: what cannot be read is a usage error that names the option and shows what would be right.
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
from wheelsched.core.duration import parse_duration
from wheelsched.errors import InvalidDuration, InvalidJson
from wheelsched.wire.strict import check_json

MAX_FILE: Final = 16 << 20


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_address(written: str) -> Address:
    """HOST:PORT, [HOST]:PORT, or a port alone."""
    host, _, port = written.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number <= 65_535:
        raise typer.BadParameter(f"{written!r} is no address; write HOST:PORT, as 127.0.0.1:8420")
    return Address(host.strip("[]") or "127.0.0.1", number)


RELATIVE: Final = re.compile(r"(?P<later>in +)?(?P<duration>\w+)(?P<ago> +ago)?", re.ASCII)


def read_instant(written: str) -> datetime:
    """An ISO-8601 time with its offset, or one relative to now: now, 2h, 2h ago, in 5m."""
    instant = _read_relative(written.strip())
    if instant is None:
        try:
            instant = datetime.fromisoformat(written)
        except ValueError:
            instant = None
    if instant is None or instant.tzinfo is None:
        raise typer.BadParameter(
            f"{written!r} is not a time; write it with its offset, e.g. 2026-03-08T09:30:00Z, "
            "or relative to now: now, 2h ago, in 5m"
        )
    return instant


def read_optional_instant(written: str | None) -> datetime | None:
    """The same, where an option may be left out."""
    return None if written is None else read_instant(written)


def _read_relative(written: str) -> datetime | None:
    """A time by its distance from now; without a direction it lies in the past."""
    if written == "now":
        return now()
    found = RELATIVE.fullmatch(written)
    if found is None or (found["later"] and found["ago"]):
        return None
    try:
        distance = timedelta(microseconds=parse_duration(found["duration"]))
        return now() + distance if found["later"] else now() - distance
    except (InvalidDuration, OverflowError):
        return None


def now() -> datetime:
    """The time of day of this machine."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=SystemClock.wall_us())


def read_pairs(written: list[str], separator: str, example: str) -> dict[str, str]:
    """Options such as --tag team=a, however many."""
    pairs = {}
    for each in written:
        name, found, value = each.partition(separator)
        if not found or not name.strip():
            raise typer.BadParameter(f"{each!r} is no pair; write it as {example}")
        pairs[name.strip()] = value.strip()
    return pairs


def read_tags(written: list[str] | None) -> dict[str, str]:
    """Tags as NAME=VALUE, or as REST has them, NAME:VALUE: no name contains a colon."""
    tags = {}
    for each in written or []:
        found = re.fullmatch(r"([^=:]+)[=:](.*)", each, re.DOTALL)
        if found is None or not found[1].strip():
            raise typer.BadParameter(f"{each!r} is not a tag; write it as team=a")
        tags[found[1].strip()] = found[2].strip()
    return tags


def read_payload(written: str) -> Raw:
    """JSON, or @ and the name of a file that holds some; @- is stdin."""
    text = read_text(written[1:]) if written.startswith("@") else written
    return read_json(text, example='\'{"report": "weekly"}\', or @FILE')


def read_json(text: str, *, example: str) -> Raw:
    """JSON that means the same to every reader, as it was written."""
    body = text.encode("utf-8", "surrogateescape")  # what was no UTF-8 is refused with the rest
    try:
        check_json(body)
    except InvalidJson as error:
        place = f"{error.pointer}: " if error.pointer else ""
        raise typer.BadParameter(f"{place}{error}; write JSON, as {example}") from error
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
        raise typer.BadParameter(f"{path} cannot be read: {error}") from error
    if len(text) > MAX_FILE:
        raise typer.BadParameter(f"{path} is larger than {MAX_FILE:,} characters; split it")
    return text
