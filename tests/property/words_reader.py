"""Reads the times of day back from the words of a schedule.

Invariant: this file shares no code with wheelsched. It knows the phrases, and what they mean to a
person who reads them.
"""

import re
from itertools import product

TIME = r"\d\d:\d\d(?::\d\d)?"
LIST = r"\d+(?: through \d+)?(?:(?:, | and )\d+(?: through \d+)?)*"
UNIT = "(?:hour|minute)"
SCOPE = rf"every {UNIT}|every \d+\w\w {UNIT} from \d+ to \d+|(?:the )?{UNIT}s? {LIST}"
EVERY_N = r"Every ((?:\d+ )?(?:minute|second)s?)(?: from (?:minute|second) (\d+) to (\d+))?"
UNITS = {"hour": 3_600, "minute": 60, "second": 1}


def times_of(words: str) -> set[int]:
    """The seconds of the day that words name, days and months left aside."""
    times = words.split(" on ", maxsplit=1)[0].split(" in ", maxsplit=1)[0]
    for pattern, read in READERS:
        if matched := re.fullmatch(pattern, times):
            return read(matched)
    raise AssertionError(f"no such phrase: {words!r}")


def numbers(text: str) -> set[int]:
    """`1 through 3, 7 and 9`."""
    found: set[int] = set()
    for part in re.split(r", | and ", text):
        first, _, last = part.partition(" through ")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def scoped(text: str | None, size: int) -> set[int]:
    """`every hour`, `the hours 09 and 17`, `every 2nd hour from 00 to 22`."""
    if text is None or text in ("every hour", "every minute"):
        return set(range(size))
    if matched := re.fullmatch(r"every (\d+)\w\w \w+ from (\d+) to (\d+)", text):
        step, first, last = map(int, matched.groups())
        return set(range(first, last + 1, step))
    return numbers(re.sub(r"^(the )?[a-z]+ ", "", text))


def clock(text: str) -> int:
    hour, minute, second = map(int, [*text.split(":"), "0"][:3])
    return hour * 3_600 + minute * 60 + second


def interval(text: str) -> int:
    amount, _, unit = text.rpartition(" ")
    return int(amount or 1) * UNITS[unit.removesuffix("s")]


def listed(matched: re.Match[str]) -> set[int]:
    return {clock(text) for text in re.findall(TIME, matched[0])}


def evenly(matched: re.Match[str]) -> set[int]:
    first, last = (clock(matched[2]), clock(matched[3])) if matched[2] else (0, 86_399)
    return set(range(first, last + 1, interval(matched[1])))


def past_every(matched: re.Match[str]) -> set[int]:
    minutes, seconds, unit = matched.groups()
    offset = int(minutes or 0) * 60 + int(seconds or 0)
    return set(range(offset, 86_400, UNITS[unit]))


def of_fields(seconds: set[int], minutes: set[int], hours: set[int]) -> set[int]:
    return {
        hour * 3_600 + minute * 60 + second
        for hour, minute, second in product(hours, minutes, seconds)
    }


def at_minutes(matched: re.Match[str]) -> set[int]:
    return of_fields({0}, numbers(matched[1]), scoped(matched[2], 24))


def every_in(matched: re.Match[str]) -> set[int]:
    """`Every 5 minutes [from minute 1 to 56] during|of …`."""
    step, unit = interval(matched[1]), matched[1].split()[-1].removesuffix("s")
    step //= UNITS[unit]
    first, last = (int(matched[2]), int(matched[3])) if matched[2] else (0, 59)
    values = set(range(first, last + 1, step))
    if unit == "minute":
        return of_fields({0}, values, scoped(matched[4], 24))
    if "hour" in matched[4]:
        return of_fields(values, set(range(60)), scoped(matched[4], 24))
    return of_fields(values, scoped(matched[4], 60), scoped(matched[5], 24))


def at_seconds(matched: re.Match[str]) -> set[int]:
    return of_fields(numbers(matched[1]), scoped(matched[2], 60), scoped(matched[3], 24))


READERS = [
    (rf"At {TIME}(?:(?:, | and ){TIME})*", listed),
    (rf"Every ((?:\d+ )?(?:hour|minute|second)s?)(?: from ({TIME}) to ({TIME}))?", evenly),
    (r"At (?:(\d+) minutes? and )?(?:(\d+) seconds?) past every (hour|minute)", past_every),
    (rf"At ({LIST}) minutes? past ({SCOPE})", at_minutes),
    (rf"{EVERY_N} (?:during|of) ({SCOPE})(?: (?:during|of) ({SCOPE}))?", every_in),
    (rf"At seconds? ({LIST}) of ({SCOPE})(?: (?:during|of) ({SCOPE}))?", at_seconds),
]
