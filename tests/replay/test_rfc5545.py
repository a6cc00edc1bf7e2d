"""The examples of RFC 5545: section 3.8.5.3 in its order, and those in the text of 3.3.10.

All of them are in New York, at nine, which no clock change touches. Where the RFC goes on forever,
the table has as many times as the RFC writes down. It has one error: UNTIL=19970902T170000Z is
13:00 in New York, and so 15:00 is not due. The rule that was meant follows.
"""

import pytest
from tests.replay.facts import Fact, on, replay, rule

NEW_YORK = "America/New_York"
EVERY_20_MINUTES = [
    f"1997-09-{day:02}T{hour:02}:{minute:02}"
    for day in (2, 3)
    for hour in range(9, 17)
    for minute in (0, 20, 40)
]
THURSDAYS_OF_SUMMER = on(
    "09:00",
    "1997-06: 5,12,19,26",
    "1997-07: 3,10,17,24,31",
    "1997-08: 7,14,21,28",
    "1998-06: 4,11,18,25",
    "1998-07: 2,9,16,23,30",
    "1998-08: 6,13,20,27",
    "1999-06: 3,10,17,24",
    "1999-07: 1,8,15,22,29",
    "1999-08: 5,12,19,26",
)


def example(start: str, text: str, *days: str, is_all: bool = True) -> Fact:
    return rule(f"{start}T090000", text, on("09:00", *days), timezone=NEW_YORK, is_all=is_all)


def forever(start: str, text: str, *days: str) -> Fact:
    return example(start, text, *days, is_all=False)


def within_a_day(text: str, due: list[str], *, is_all: bool = True) -> Fact:
    return rule("19970902T090000", text, due, timezone=NEW_YORK, is_all=is_all)


JANUARIES = ["1998-01: 1-31", "1999-01: 1-31", "2000-01: 1-31"]
FIVE_WEEKS = ["1997-09: 2,4,9,11,16,18,23,25,30", "1997-10: 2"]
EXAMPLES = [
    example("19970902", "FREQ=DAILY;COUNT=10", "1997-09: 2-11"),
    example(
        "19970902",
        "FREQ=DAILY;UNTIL=19971224T000000Z",
        "1997-09: 2-30",
        "1997-10: 1-31",
        "1997-11: 1-30",
        "1997-12: 1-23",
    ),
    forever(
        "19970902",
        "FREQ=DAILY;INTERVAL=2",
        "1997-09: 2,4,6,8,10,12,14,16,18,20,22,24,26,28,30",
        "1997-10: 2,4,6,8,10,12,14,16,18,20,22,24,26,28,30",
        "1997-11: 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29",
        "1997-12: 1,3",
    ),
    example("19970902", "FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09: 2,12,22", "1997-10: 2,12"),
    example(
        "19980101",
        "FREQ=YEARLY;UNTIL=20000131T140000Z;\n BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
        *JANUARIES,
    ),
    example("19980101", "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", *JANUARIES),
    example(
        "19970902",
        "FREQ=WEEKLY;COUNT=10",
        "1997-09: 2,9,16,23,30",
        "1997-10: 7,14,21,28",
        "1997-11: 4",
    ),
    example(
        "19970902",
        "FREQ=WEEKLY;UNTIL=19971224T000000Z",
        "1997-09: 2,9,16,23,30",
        "1997-10: 7,14,21,28",
        "1997-11: 4,11,18,25",
        "1997-12: 2,9,16,23",
    ),
    forever(
        "19970902",
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU",
        "1997-09: 2,16,30",
        "1997-10: 14,28",
        "1997-11: 11,25",
        "1997-12: 9,23",
        "1998-01: 6,20",
        "1998-02: 3,17",
    ),
    example("19970902", "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH", *FIVE_WEEKS),
    example("19970902", "FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH", *FIVE_WEEKS),
    example(
        "19970901",
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;\n BYDAY=MO,WE,FR",
        "1997-09: 1,3,5,15,17,19,29",
        "1997-10: 1,3,13,15,17,27,29,31",
        "1997-11: 10,12,14,24,26,28",
        "1997-12: 8,10,12,22",
    ),
    example(
        "19970902",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
        "1997-09: 2,4,16,18,30",
        "1997-10: 2,14,16",
    ),
    example(
        "19970905",
        "FREQ=MONTHLY;COUNT=10;BYDAY=1FR",
        "1997-09: 5",
        "1997-10: 3",
        "1997-11: 7",
        "1997-12: 5",
        "1998-01: 2",
        "1998-02: 6",
        "1998-03: 6",
        "1998-04: 3",
        "1998-05: 1",
        "1998-06: 5",
    ),
    example(
        "19970905",
        "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR",
        "1997-09: 5",
        "1997-10: 3",
        "1997-11: 7",
        "1997-12: 5",
    ),
    example(
        "19970907",
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        "1997-09: 7,28",
        "1997-11: 2,30",
        "1998-01: 4,25",
        "1998-03: 1,29",
        "1998-05: 3,31",
    ),
    example(
        "19970922",
        "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO",
        "1997-09: 22",
        "1997-10: 20",
        "1997-11: 17",
        "1997-12: 22",
        "1998-01: 19",
        "1998-02: 16",
    ),
    forever(
        "19970928",
        "FREQ=MONTHLY;BYMONTHDAY=-3",
        "1997-09: 28",
        "1997-10: 29",
        "1997-11: 28",
        "1997-12: 29",
        "1998-01: 29",
        "1998-02: 26",
    ),
    example(
        "19970902",
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15",
        "1997-09: 2,15",
        "1997-10: 2,15",
        "1997-11: 2,15",
        "1997-12: 2,15",
        "1998-01: 2,15",
    ),
    example(
        "19970930",
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
        "1997-09: 30",
        "1997-10: 1,31",
        "1997-11: 1,30",
        "1997-12: 1,31",
        "1998-01: 1,31",
        "1998-02: 1",
    ),
    example(
        "19970910",
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,\n 13,14,15",
        "1997-09: 10-15",
        "1999-03: 10-13",
    ),
    forever(
        "19970902",
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
        "1997-09: 2,9,16,23,30",
        "1997-11: 4,11,18,25",
        "1998-01: 6,13,20,27",
        "1998-03: 3,10,17,24,31",
    ),
    example(
        "19970610",
        "FREQ=YEARLY;COUNT=10;BYMONTH=6,7",
        *[f"{year}-{month}: 10" for year in range(1997, 2002) for month in ("06", "07")],
    ),
    example(
        "19970310",
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        "1997-03: 10",
        *[f"{year}-{month}: 10" for year in (1999, 2001, 2003) for month in ("01", "02", "03")],
    ),
    example(
        "19970101",
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        "1997-01: 1",
        "1997-04: 10",
        "1997-07: 19",
        "2000-01: 1",
        "2000-04: 9",
        "2000-07: 18",
        "2003-01: 1",
        "2003-04: 10",
        "2003-07: 19",
        "2006-01: 1",
    ),
    forever("19970519", "FREQ=YEARLY;BYDAY=20MO", "1997-05: 19", "1998-05: 18", "1999-05: 17"),
    forever(
        "19970512",
        "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO",
        "1997-05: 12",
        "1998-05: 11",
        "1999-05: 17",
    ),
    forever(
        "19970313",
        "FREQ=YEARLY;BYMONTH=3;BYDAY=TH",
        "1997-03: 13,20,27",
        "1998-03: 5,12,19,26",
        "1999-03: 4,11,18,25",
    ),
    rule(
        "19970605T090000",
        "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8",
        THURSDAYS_OF_SUMMER,
        timezone=NEW_YORK,
    ),
    forever(
        "19970902",
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13\nEXDATE;TZID=America/New_York:19970902T090000",
        "1998-02: 13",
        "1998-03: 13",
        "1998-11: 13",
        "1999-08: 13",
        "2000-10: 13",
    ),
    forever(
        "19970913",
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        "1997-09: 13",
        "1997-10: 11",
        "1997-11: 8",
        "1997-12: 13",
        "1998-01: 10",
        "1998-02: 7",
        "1998-03: 7",
        "1998-04: 11",
        "1998-05: 9",
        "1998-06: 13",
    ),
    forever(
        "19961105",
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;\n BYMONTHDAY=2,3,4,5,6,7,8",
        "1996-11: 5",
        "2000-11: 7",
        "2004-11: 2",
    ),
    example(
        "19970904",
        "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3",
        "1997-09: 4",
        "1997-10: 7",
        "1997-11: 6",
    ),
    forever(
        "19970929",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        "1997-09: 29",
        "1997-10: 30",
        "1997-11: 27",
        "1997-12: 30",
        "1998-01: 29",
        "1998-02: 26",
        "1998-03: 30",
    ),
    within_a_day(
        "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000Z",
        ["1997-09-02T09:00", "1997-09-02T12:00"],
    ),
    within_a_day(
        "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000",
        ["1997-09-02T09:00", "1997-09-02T12:00", "1997-09-02T15:00"],
    ),
    within_a_day(
        "FREQ=MINUTELY;INTERVAL=15;COUNT=6",
        [f"1997-09-02T{time}" for time in ("09:00", "09:15", "09:30", "09:45", "10:00", "10:15")],
    ),
    within_a_day(
        "FREQ=MINUTELY;INTERVAL=90;COUNT=4",
        [f"1997-09-02T{time}" for time in ("09:00", "10:30", "12:00", "13:30")],
    ),
    within_a_day(
        "FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40", EVERY_20_MINUTES, is_all=False
    ),
    within_a_day(
        "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16", EVERY_20_MINUTES, is_all=False
    ),
    example(
        "19970805", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997-08: 5,10,19,24"
    ),
    example(
        "19970805", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997-08: 5,17,19,31"
    ),
    example(
        "20070115",
        "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5",
        "2007-01: 15,30",
        "2007-02: 15",
        "2007-03: 15,30",
    ),
    # 3.3.10: the last work day of the month, and every other year, on Sundays of January.
    forever(
        "19970930",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "1997-09: 30",
        "1997-10: 31",
        "1997-11: 28",
        "1997-12: 31",
    ),
    rule(
        "19970105T083000",
        "FREQ=YEARLY;INTERVAL=2;BYMONTH=1;BYDAY=SU;BYHOUR=8,9;\n BYMINUTE=30",
        [
            f"{day}T{hour}:30"
            for day in (
                *[f"1997-01-{day:02}" for day in (5, 12, 19, 26)],
                *[f"1999-01-{day:02}" for day in (3, 10, 17, 24, 31)],
            )
            for hour in ("08", "09")
        ],
        timezone=NEW_YORK,
    ),
]


@pytest.mark.parametrize("fact", EXAMPLES, ids=lambda fact: fact.schedule.partition("RRULE:")[2])
def test_the_examples_of_the_rfc(fact: Fact) -> None:
    replay(fact)
