"""Zones that changed their clocks and soon changed them back: no change may be missed."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from tests.unit.schedule.due import SECOND, next_due, us

from wheelsched.schedule.dst import AS_SHOWN, timeline

DAY_S = 86_400


@pytest.mark.parametrize(
    ("timezone", "month"),
    [
        ("America/Recife", "2000-10-01"),  # for seven days, the shortest since 1970
        ("America/Boa_Vista", "2000-10-01"),
        ("America/Argentina/Tucuman", "2004-06-01"),
        ("America/Fortaleza", "2000-10-01"),
        ("Africa/Cairo", "2010-08-01"),
        ("Africa/Cairo", "2010-09-01"),
        ("Pacific/Fiji", "2020-12-15"),
    ],
)
def test_a_change_that_is_soon_undone_is_seen(timezone: str, month: str) -> None:
    zone = ZoneInfo(timezone)
    rows = timeline(timezone, *AS_SHOWN)
    first_s = us(month) // SECOND
    offsets = set()
    for utc_s in range(first_s, first_s + 40 * DAY_S, DAY_S // 4):
        offset = datetime.fromtimestamp(utc_s, zone).utcoffset()
        assert offset is not None
        assert rows.at(utc_s).offset_s == offset.total_seconds()
        offsets.add(offset)
    assert len(offsets) == 2


def test_the_week_of_summer_time_in_recife() -> None:
    due = next_due("0 12 * * *", 9, after="2000-10-07T13:00", timezone="America/Recife")
    assert [text[-5:] for text in due] == ["-0200"] * 7 + ["-0300"] * 2
