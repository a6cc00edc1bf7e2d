"""What other implementations of RFC 5545 know, as they document and test it.

Each table says whose facts it has. Where we differ on purpose, the table has what is due here.
"""

from itertools import pairwise

import pytest
from tests.replay.facts import Fact, due_times, on, replay, rule

from wheelsched.errors import InvalidRecurrence
from wheelsched.schedule.parse import parse


def midnight(start: str, text: str, *days: str, is_all: bool = False) -> Fact:
    return rule(f"{start}T000000", text, on("00:00", *days), is_all=is_all)


def tuesday(text: str, *days: str, is_all: bool = False) -> Fact:
    """Of Tuesday, September 2, 1997, where the tests of dateutil begin."""
    return rule("19970902T090000", text, on("09:00", *days), is_all=is_all)


# lib-recur (Java): RecurrenceRuleTest and RecurrenceRuleYearlyTest.
LIB_RECUR = [
    midnight(
        "20200902",
        "FREQ=MONTHLY;BYDAY=1MO,-1MO,WE",
        "2020-09: 2,7,9,16,23,28,30",
        "2020-10: 5,7",
    ),
    midnight(
        "20200404",
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=TU;UNTIL=20200430T170000Z",
        "2020-04: 14,28",
        is_all=True,
    ),
    rule(
        "20201230T000000",
        "FREQ=WEEKLY;INTERVAL=2;BYHOUR=13;BYDAY=MO;COUNT=2",
        on("13:00", "2021-01: 11,25"),
        is_all=True,
    ),
    midnight(
        "20130101",
        "FREQ=MONTHLY;INTERVAL=1;BYDAY=+3TH;UNTIL=20140101T045959Z;WKST=SU",
        "2013-01: 17",
        "2013-02: 21",
        "2013-03: 21",
    ),
    rule(
        "20230301T000000",
        "FREQ=DAILY;BYHOUR=12;UNTIL=20230305",
        on("12:00", "2023-03: 1-5"),
        is_all=True,
    ),
    midnight(
        "20230501",
        "FREQ=MONTHLY;BYMONTHDAY=31;COUNT=3",
        "2023-05: 31",
        "2023-07: 31",
        "2023-08: 31",
        is_all=True,
    ),
    midnight(
        "20180101",
        "FREQ=YEARLY;BYWEEKNO=1,10",
        "2018-01: 1",
        "2018-03: 5",
        "2018-12: 31",
        "2019-03: 4",
        "2019-12: 30",
        "2020-03: 2",
        "2021-01: 4",
        "2021-03: 8",
        "2022-01: 3",
    ),
    midnight(
        "20180101",
        "FREQ=YEARLY;BYWEEKNO=1,10;BYDAY=TU",
        "2018-01: 2",
        "2018-03: 6",
        "2019-01: 1",
        "2019-03: 5",
        "2019-12: 31",
        "2020-03: 3",
        "2021-01: 5",
    ),
    midnight(
        "20180101", "FREQ=YEARLY;BYWEEKNO=1,10;BYDAY=TU;BYMONTHDAY=3", "2020-03: 3", "2023-01: 3"
    ),
    midnight(
        "20180101",
        "FREQ=YEARLY;BYMONTH=1,2;BYWEEKNO=1,7,20",
        "2018-01: 1",
        "2018-02: 12",
        "2019-02: 11",
        "2020-02: 10",
        "2021-01: 4",
        "2021-02: 15",
    ),
    midnight(
        "20100101",
        "FREQ=YEARLY;BYMONTH=1,3;BYYEARDAY=1,14,31,32,60,61",
        "2010-01: 1,14,31",
        "2010-03: 1,2",
        "2011-01: 1,14,31",
    ),
]

# rrule.js, issues 71, 165 and 375; php-rrule, issue 39.
RRULE_JS = [
    midnight(
        "20140901",
        "WKST=SU;FREQ=MONTHLY;INTERVAL=1;BYDAY=MO,-1WE",
        "2014-09: 1,8,15,22,24,29",
        "2014-10: 6,13,20,27,29",
    ),
    midnight("20170306", "FREQ=DAILY;INTERVAL=3;BYDAY=MO,TU,WE,TH,FR", "2017-03: 6,9,15,21,24"),
    midnight("20191201", "FREQ=MONTHLY;BYDAY=MO,WE;BYSETPOS=3", "2019-12: 9", "2020-01: 8"),
    midnight("20171007", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;WKST=SU", "2017-10: 20"),
    midnight("20171008", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;WKST=SU", "2017-10: 13"),
    midnight("20171007", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;WKST=SA", "2017-10: 13"),
]

# dateutil: test_rrule. The first row is where we differ: dateutil has all days of week 20, the RFC
# and lib-recur only the weekday of DTSTART.
DATEUTIL = [
    tuesday("FREQ=YEARLY;BYWEEKNO=20", "1998-05: 12", "1999-05: 18", "2000-05: 16"),
    tuesday("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1998-05: 11", "1999-05: 17", "2000-05: 15"),
    tuesday("FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO", "1997-12: 29", "1999-01: 4", "2000-01: 3"),
    tuesday("FREQ=YEARLY;BYWEEKNO=52;BYDAY=SU", "1997-12: 28", "1998-12: 27", "2000-01: 2"),
    tuesday("FREQ=YEARLY;BYWEEKNO=-1;BYDAY=SU", "1997-12: 28", "1999-01: 3", "2000-01: 2"),
    tuesday("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO", "1998-12: 28", "2004-12: 27", "2009-12: 28"),
    tuesday("FREQ=YEARLY;BYDAY=1TU,-1TH", "1997-12: 25", "1998-01: 6", "1998-12: 31"),
    tuesday("FREQ=YEARLY;BYDAY=3TU,-3TH", "1997-12: 11", "1998-01: 20", "1998-12: 17"),
    tuesday("FREQ=YEARLY;BYMONTH=1,3;BYDAY=1TU,-1TH", "1998-01: 6,29", "1998-03: 3"),
    tuesday("FREQ=YEARLY;BYMONTH=1,3;BYDAY=3TU,-3TH", "1998-01: 15,20", "1998-03: 12"),
    tuesday(
        "FREQ=YEARLY;BYYEARDAY=1,100,200,365;COUNT=4",
        "1997-12: 31",
        "1998-01: 1",
        "1998-04: 10",
        "1998-07: 19",
        is_all=True,
    ),
    tuesday(
        "FREQ=YEARLY;BYYEARDAY=-365,-266,-166,-1;COUNT=4",
        "1997-12: 31",
        "1998-01: 1",
        "1998-04: 10",
        "1998-07: 19",
        is_all=True,
    ),
    tuesday(
        "FREQ=YEARLY;BYMONTH=4,7;BYYEARDAY=1,100,200,365",
        "1998-04: 10",
        "1998-07: 19",
        "1999-04: 10",
        "1999-07: 19",
    ),
    tuesday("FREQ=MONTHLY;BYDAY=1TU,-1TH", "1997-09: 2,25", "1997-10: 7"),
    tuesday("FREQ=MONTHLY;BYMONTHDAY=1,3;BYDAY=TU,TH", "1998-01: 1", "1998-02: 3", "1998-03: 3"),
    tuesday(
        "FREQ=MONTHLY;BYMONTH=1,3;BYMONTHDAY=1,3;BYDAY=TU,TH",
        "1998-01: 1",
        "1998-03: 3",
        "2001-03: 1",
    ),
    tuesday("FREQ=WEEKLY;INTERVAL=20", "1997-09: 2", "1998-01: 20", "1998-06: 9"),
    tuesday("FREQ=WEEKLY;BYMONTH=1,3", "1998-01: 6,13,20"),
    tuesday("FREQ=DAILY;INTERVAL=92", "1997-09: 2", "1997-12: 3", "1998-03: 5"),
    tuesday("FREQ=DAILY;BYMONTH=1,3;BYMONTHDAY=1,3", "1998-01: 1,3", "1998-03: 1"),
]

# lib-recur: RecurrenceEquivalenceTest. The rules of a row are due at the same times.
SAME = {
    "the last work day of the month": (
        "20120101T000000",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "FREQ=MONTHLY;BYDAY=-1MO,-1TU,-1WE,-1TH,-1FR;BYSETPOS=-1",
        "FREQ=MONTHLY;BYMONTHDAY=26,27,28,29,30,31;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    ),
    "the first work day of the month": (
        "20120101T000000",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1",
        "FREQ=MONTHLY;BYDAY=1MO,1TU,1WE,1TH,1FR;BYSETPOS=1",
        "FREQ=MONTHLY;BYMONTHDAY=1,2,3;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1",
    ),
    "the last month of the year": (
        "20101227T000000",
        "FREQ=YEARLY;BYMONTH=1,2,3,4,5,6,7,8,9,10,11,12;BYSETPOS=-1",
        "FREQ=MONTHLY;BYMONTH=12",
        "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=27",
        "FREQ=DAILY;BYMONTH=12;BYMONTHDAY=27",
    ),
    "a birthday": (
        "19890515T000000",
        "FREQ=DAILY;BYMONTH=5;BYMONTHDAY=15",
        "FREQ=MONTHLY;BYMONTH=5;BYMONTHDAY=15",
        "FREQ=MONTHLY;BYMONTH=5",
        "FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=15",
        "FREQ=YEARLY",
    ),
    "positions are days of the month": (
        "20010101T000000",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=1,3,5,7,9",
        "FREQ=MONTHLY;BYMONTHDAY=1,3,5,7,9",
    ),
    "twelve months are a year": (
        "20010101T000000",
        "FREQ=MONTHLY;INTERVAL=12;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=1,3,-1,-3,-5",
        "FREQ=YEARLY;BYYEARDAY=1,3,31,29,27",
    ),
    "the last Thursday of a long month": (
        "20120101T000000",
        "FREQ=YEARLY;BYMONTH=1,3,5,7,8,10,12;BYMONTHDAY=25,26,27,28,29,30,31;BYDAY=TH",
        "FREQ=MONTHLY;BYMONTH=1,3,5,7,8,10,12;BYDAY=TH;BYSETPOS=-1",
        "FREQ=DAILY;BYMONTH=1,3,5,7,8,10,12;BYMONTHDAY=25,26,27,28,29,30,31;BYDAY=TH",
        "FREQ=MONTHLY;BYMONTH=1,3,5,7,8,10,12;BYDAY=-1TH",
    ),
    "a second of each quarter": (
        "20120101T053027",
        "FREQ=HOURLY;BYSECOND=27;BYMINUTE=0,15,30,45",
        "FREQ=MINUTELY;BYMINUTE=0,15,30,45;BYSECOND=27",
        "FREQ=SECONDLY;BYMINUTE=0,15,30,45;BYSECOND=27",
    ),
    "an hour of some days": (
        "20090713T000000",
        "FREQ=WEEKLY;BYDAY=MO,WE,FR;BYHOUR=15",
        "FREQ=HOURLY;BYDAY=MO,WE,FR;BYHOUR=15",
    ),
}

# What the RFC allows, or others accept, and we refuse; with a word of what we say.
REFUSED = {
    "RDATE:19970902T090000\nRRULE:FREQ=DAILY": "'RDATE' is not supported",
    "RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY": "exactly one RRULE",
    "FREQ=YEARLY;BYMONTHDAY=15;BYHOUR=6,18;BYSETPOS=3": "several times a day",
    "FREQ=WEEKLY;BYDAY=TU,TH;BYSETPOS=1": "BYSETPOS without",
    "FREQ=HOURLY;INTERVAL=769": "'every 36h'",
    "FREQ=MINUTELY;INTERVAL=1501": "longer than a day",
    "FREQ=DAILY;BYSECOND=60": "BYSECOND=60 is not valid",
    "RSCALE=GREGORIAN;FREQ=YEARLY": "'RSCALE' is unknown",
    "FREQ=DAILY;BYEASTER=0": "'BYEASTER' is unknown",
    "FREQ=WEEKLY;BYDAY=1TU": "a numbered BYDAY",
    "FREQ=YEARLY;BYWEEKNO=20;BYDAY=1TU": "a numbered BYDAY",
    "FREQ=DAILY;COUNT=3;UNTIL=19971224T000000Z": "COUNT and UNTIL",
}


@pytest.mark.parametrize(
    "fact", LIB_RECUR + RRULE_JS + DATEUTIL, ids=lambda fact: fact.schedule.replace("\n", " ")
)
def test_what_others_know(fact: Fact) -> None:
    replay(fact)


@pytest.mark.parametrize("name", SAME)
def test_rules_that_mean_the_same_are_due_at_the_same_times(name: str) -> None:
    start, *rules = SAME[name]
    found = [due_times(f"DTSTART:{start}\nRRULE:{text}", "1980-01-01T00:00", 40) for text in rules]
    assert len(found[0]) == 40
    for one, other in pairwise(found):
        assert one == other


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_here(text: str) -> None:
    with pytest.raises(InvalidRecurrence, match=REFUSED[text]):
        parse(text, now_us=0)
