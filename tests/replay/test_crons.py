"""What other schedulers know about cron, as they document and test it.

Each table says whose facts it has. None of them is about clock changes. Where we differ on
purpose, the table has what is due here, or what we say.
"""

import pytest
from tests.replay.facts import Fact, on, replay

from wheelsched.errors import InvalidField
from wheelsched.schedule.parse import parse

# croniter: test_croniter; its seconds are last, ours first.
CRONITER = [
    Fact(
        "15,25 * * * * *",
        "2012-04-06T13:26:10",
        ["2012-04-06T13:26:15", "2012-04-06T13:26:25", "2012-04-06T13:27:15"],
    ),
    Fact(
        "*/15 * * * * *",
        "2012-04-06T13:26:36",
        ["2012-04-06T13:26:45", "2012-04-06T13:27:00", "2012-04-06T13:27:15"],
    ),
    Fact("*/5 * * * *", "2010-01-23T12:18", ["2010-01-23T12:20", "2010-01-23T12:25"]),
    Fact(
        "0 */3 * * *",
        "2010-01-24T12:02",
        ["2010-01-24T15:00", "2010-01-24T18:00", "2010-01-24T21:00", "2010-01-25T00:00"],
    ),
    Fact("0 0 */3 * *", "2010-02-24T12:09", on("00:00", "2010-02: 25,28", "2010-03: 1,4")),
    Fact("0 0 * * *", "1996-02-27T00:00", on("00:00", "1996-02: 28,29", "1996-03: 1")),
    Fact("0 0 * * *", "2000-02-27T00:00", on("00:00", "2000-02: 28,29", "2000-03: 1")),
    Fact("0 0 * * sat", "2010-02-25T00:00", on("00:00", "2010-02: 27", "2010-03: 6")),
    Fact("0 0 1 * wed", "2010-01-25T00:00", on("00:00", "2010-01: 27", "2010-02: 1,3")),
    Fact("0 0 * * sat#1", "2010-02-25T00:00", on("00:00", "2010-03: 6", "2010-04: 3")),
    Fact(
        "0 0 * * wed#5",
        "2010-01-25T00:00",
        on("00:00", "2010-03: 31", "2010-06: 30", "2010-09: 29"),
    ),
    Fact(
        "0 0 l * *",
        "2015-09-04T00:00",
        on("00:00", "2015-09: 30", "2015-10: 31", "2015-11: 30", "2015-12: 31"),
    ),
    Fact("30 22 * * sun-thu", "2010-08-25T15:56", on("22:30", "2010-08: 25,26,29")),
    Fact("0 5,5,1-6 * * *", "2010-08-25T04:30", ["2010-08-25T05:00", "2010-08-25T06:00"]),
    Fact(
        "59 23 * 1 wed,fri,mon-thu,tue,tue",
        "2010-01-01T00:00",
        on("23:59", "2010-01: 1,4,5,6,7,8,11"),
    ),
]

# cronsim: tests of its parser and its iterator.
CRONSIM = [
    Fact("1 1 L * *", "2020-01-01T00:00", on("01:01", "2020-01: 31", "2020-02: 29")),
    Fact(
        "1 1 * * 5L",
        "2020-01-01T00:00",
        on("01:01", "2020-01: 31", "2020-02: 28", "2020-03: 27", "2020-04: 24", "2020-05: 29"),
    ),
    Fact("1 1 * * 0L", "2020-01-01T00:00", on("01:01", "2020-01: 26")),
    Fact("1 1 * * 7L", "2020-01-01T00:00", on("01:01", "2020-01: 26")),
    Fact("1 1 * * 1#2", "2020-01-01T00:00", on("01:01", "2020-01: 13", "2020-02: 10")),
    Fact(
        "1 1 1-7 * */7",
        "2020-01-01T00:00",
        on("01:01", "2020-01: 5", "2020-02: 2", "2020-03: 1", "2020-04: 5"),
    ),
    Fact(
        "1 1 */31,1-7 * MON",
        "2020-01-01T00:00",
        on("01:01", "2020-01: 6", "2020-02: 3", "2020-03: 2", "2020-04: 6"),
    ),
    Fact(
        "5/15 * * * *",
        "2020-01-01T00:00",
        [f"2020-01-01T{time}" for time in ("00:05", "00:20", "00:35", "00:50", "01:05")],
    ),
    Fact("0 0 * * */2", "2020-01-01T00:00", on("00:00", "2020-01: 2,4,5,7")),
]

# robfig/cron: spec_test, and its predefined schedules.
ROBFIG = [
    Fact("0 20-35/15 * * * *", "2012-07-09T15:45", ["2012-07-09T16:20", "2012-07-09T16:35"]),
    Fact("0 */15 * * * *", "2012-07-09T23:46", ["2012-07-10T00:00"]),
    Fact("15/35 20-35/15 * * * *", "2012-07-09T23:35:51", ["2012-07-10T00:20:15"]),
    Fact("15/35 20-35/15 1/2 * * *", "2012-07-09T23:35:51", ["2012-07-10T01:20:15"]),
    Fact("15/35 20-35/15 1/2 */2 * *", "2012-07-09T23:35:51", ["2012-07-11T01:20:15"]),
    Fact("15/35 20-35/15 * 9-20 Jul *", "2012-07-09T23:35:51", ["2012-07-10T00:20:15"]),
    Fact("0 0 0 9 Apr-Oct ?", "2012-07-09T23:35", on("00:00", "2012-08: 9")),
    Fact("0 0 0 * Feb Mon", "2012-07-09T23:35", on("00:00", "2013-02: 4")),
    Fact("0 0 0 * Feb Mon/2", "2012-07-09T23:35", on("00:00", "2013-02: 1,3,4,6")),
    Fact("0 * * * * *", "2012-12-31T23:59:45", ["2013-01-01T00:00"]),
    Fact("0 0 0 29 Feb ?", "2012-07-09T23:35", on("00:00", "2016-02: 29", "2020-02: 29")),
    Fact("0 30 08 ? Jul Sun", "2012-07-15T00:00", on("08:30", "2012-07: 15,22")),
    Fact("0 0 1,15 * Sun", "2012-07-09T00:00", on("00:00", "2012-07: 15,22,29", "2012-08: 1,5")),
    Fact("@hourly", "2012-07-09T15:04", ["2012-07-09T16:00"]),
    Fact("@weekly", "2012-07-09T00:00", on("00:00", "2012-07: 15")),
    Fact("@monthly", "2012-07-09T00:00", on("00:00", "2012-08: 1")),
    Fact("@yearly", "2012-07-09T00:00", on("00:00", "2013-01: 1")),
]

# cron-parser: tests of the day of month, and of the 31st.
CRON_PARSER = [
    Fact("0 0 0 * * 1L,5L", "2021-09-01T00:00", on("00:00", "2021-09: 24,27", "2021-10: 25,29")),
    Fact("0 0 0 * * 4L", "2021-09-01T00:00", on("00:00", "2021-09: 30")),
    Fact("0 0 6-20/2,L 2 *", "2016-01-01T00:00", on("00:00", "2016-02: 6,8,10,12,14,16,18,20,29")),
    Fact("0 0 1,3,6-10,L 2 *", "2014-01-01T00:00", on("00:00", "2014-02: 1,3,6-10,28")),
    Fact(
        "0 0 31 * *",
        "2100-10-31T00:00",
        on("00:00", "2100-12: 31", "2101-01: 31", "2101-03: 31", "2101-05: 31"),
    ),
    Fact("0 0 29 2 *", "2096-03-01T00:00", on("00:00", "2104-02: 29", "2108-02: 29")),
]

# Quartz: its tutorial of CronTrigger, where both count the same.
QUARTZ = [
    Fact("0 0 12 * * ?", "2026-11-16T00:00", on("12:00", "2026-11: 16,17")),
    Fact("0 15 10 ? * *", "2026-11-16T00:00", on("10:15", "2026-11: 16,17")),
    Fact(
        "0 0/5 14,18 * * ?",
        "2026-11-16T14:50",
        ["2026-11-16T14:55", "2026-11-16T18:00", "2026-11-16T18:05"],
    ),
    Fact("0 10,44 14 ? 3 WED", "2026-11-16T00:00", ["2027-03-03T14:10", "2027-03-03T14:44"]),
    Fact("0 15 10 ? * MON-FRI", "2026-11-20T12:00", on("10:15", "2026-11: 23,24")),
    Fact("0 15 10 L * ?", "2026-11-16T00:00", on("10:15", "2026-11: 30", "2026-12: 31")),
    Fact("0 0 12 1/5 * ?", "2026-11-16T00:00", on("12:00", "2026-11: 16,21,26", "2026-12: 1")),
    Fact("0 11 11 11 11 ?", "2026-11-16T00:00", on("11:11", "2027-11: 11")),
]

# Where we differ on purpose.
DIFFERENT = [
    # Quartz counts from Sunday = 1, so there the third Friday and the last one: November 20 and 27.
    Fact("0 15 10 ? * 6#3", "2026-11-16T00:00", on("10:15", "2026-11: 21", "2026-12: 19")),
    Fact("0 15 10 ? * 6L", "2026-11-16T00:00", on("10:15", "2026-11: 28", "2026-12: 26")),
    # Both days have to match when one begins with a star, as in Vixie cron. In croniter and
    # Kubernetes one of them is enough: May 3, 5, 6, 7.
    Fact("0 16 */2 * sat", "2023-05-02T00:00", on("16:00", "2023-05: 13,27", "2023-06: 3,17")),
    Fact("0 0 0 */5 Oct Mon", "2012-07-09T23:35", on("00:00", "2012-10: 1", "2013-10: 21")),
]

# What others accept, or refuse too; with a word of what we say.
REFUSED = {
    "0 0 0 * * 1,5L": "mixes plain days with '#' or 'L'; use two schedules",  # cron-parser: union
    "* * * * 1,2,3#1": "use two schedules",  # cronsim: union
    "* * L/2 * *": "L for the last day",  # cronsim: L
    "1 1 */100,1-7 * MON": "expected 1 to 31",  # cronsim: the first of the month
    "0 0 29-L * *": "L for the last day",  # croniter: to the last day
    "0 15 10 15W * ?": "W, the nearest working day, is not supported",  # Quartz
    "0 15 10 LW * ?": "is not supported",  # Quartz
    "0 15 10 L-3 * ?": "L for the last day",  # Quartz: three days before the last
    "0 15 10 * * ? 2005": "has 7 fields",  # Quartz: the year is last
    "0 0 * * THU-TUE/2": "write THU,SAT,MON",  # croniter wraps around
    "0 22-5 * * *": "write 22-23,0-5",  # croniter wraps around
    "@every 1h30m": "write 'every 1h30m'",  # robfig
    "TZ=Europe/Berlin 0 9 * * *": "set the field timezone",  # robfig
    "@reboot": "is not a known alias",  # Vixie cron
    "* * * *": "has 4 fields",
    "0 0 * * * FOO": "day of week 'FOO' is not valid",
    "0/120 0 8-18 ? * 2-6": "expected 1 to 60",
    "0 0/ 8-18 ? * 2-6": "minute '0/' is not valid",
    "*/0 * * * *": "expected 1 to 60",
    "* * * * 1#0": "day of week '1#0' is not valid",
    "* * * * 1#6": "day of week '1#6' is not valid",
    "* * 5-1 * *": "write 5-31,1",
    "1-1_0 * * * *": "minute '1-1_0' is not valid",
    "* * 30 2 *": "never due",
    "0 0 31 Apr ?": "never due",
    "1 1 */31 * MON#4": "never due",
}


@pytest.mark.parametrize(
    "fact",
    CRONITER + CRONSIM + ROBFIG + CRON_PARSER + QUARTZ + DIFFERENT,
    ids=lambda fact: f"{fact.schedule} after {fact.after}",
)
def test_what_others_know(fact: Fact) -> None:
    replay(fact)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_here(text: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse(text, now_us=1_600_000_000_000_000)
    assert REFUSED[text] in str(refused.value)
