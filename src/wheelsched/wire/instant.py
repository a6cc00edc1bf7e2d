"""Instants on the wire: RFC 3339 in UTC outside, integer microseconds inside.

Invariant: `read_us(instant(us), …) == us` for every valid due time.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta

from wheelsched.errors import InvalidInstant
from wheelsched.schedule.spec import END_US

Instant = Annotated[datetime, Meta(tz=True)]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def instant(instant_us: int) -> datetime:
    """The instant as a datetime in UTC."""
    return _EPOCH + instant_us * _MICROSECOND  # twice as fast as `timedelta(microseconds=…)`


def instant_text(moment: datetime) -> str:
    """An instant inside a sentence, in UTC to the millisecond: `2026-11-18T16:30:45.614Z`."""
    local = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{local.isoformat(timespec='milliseconds')}Z"


def instant_or_none(instant_us: int | None) -> datetime | None:
    """The instant as a datetime in UTC, if there is one."""
    return None if instant_us is None else instant(instant_us)


def read_us(instant: datetime, *, pointer: str) -> int:
    """The instant in microseconds, or `InvalidInstant` if it is out of range."""
    instant_us = (instant - _EPOCH) // _MICROSECOND
    if not 0 <= instant_us < END_US:
        raise InvalidInstant(
            f"{instant.isoformat()} is out of range; expected 1970-01-01T00:00:00Z to "
            "2199-12-31T23:59:59Z",
            pointer=pointer,
        )
    return instant_us
