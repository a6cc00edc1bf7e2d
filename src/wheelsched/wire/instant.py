"""Instants on the wire: RFC 3339 in UTC outside, integer microseconds inside.

Invariant: `read_us(instant(us), …) == us` for every instant that a due time can have.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta

from wheelsched.core.spec import END_US
from wheelsched.errors import InvalidInstant

Instant = Annotated[datetime, Meta(tz=True)]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def instant(instant_us: int) -> datetime:
    """An instant as it is written."""
    return _EPOCH + timedelta(microseconds=instant_us)


def instant_or_none(instant_us: int | None) -> datetime | None:
    """An instant as it is written, where there is one."""
    return None if instant_us is None else instant(instant_us)


def read_us(written: datetime, *, pointer: str) -> int:
    """The microseconds of an instant that was written, or `InvalidInstant`."""
    instant_us = (written - _EPOCH) // _MICROSECOND
    if not 0 <= instant_us < END_US:
        raise InvalidInstant(
            f"{written.isoformat()} is out of range; times are 1970-01-01T00:00:00Z to "
            "2199-12-31T23:59:59Z",
            pointer=pointer,
        )
    return instant_us
