"""How late runs were, and whether a fault explains it. And the blind look at labels."""

from bisect import bisect_right
from collections.abc import Iterator

from tests.checker.deliveries import tolerance_us
from tests.checker.findings import Evidence, Finding, Report
from tests.checker.records import Arrival
from tests.checker.story import Story, Window
from tests.checker.times import SECOND_US

PROMPT_US = SECOND_US + 100_000  # a hand-over takes a second at most
RECOVERY_US = 16 * SECOND_US  # from the end of a fault to the first fire
SLOW_US = 100_000
WARM_UP_US = 3 * SECOND_US
HARMFUL = ("crash", "freeze", "store", "clock", "deaf", "down", "stall")


def check(evidence: Evidence, report: Report) -> Iterator[Finding]:
    for story in evidence.stories.values():
        if is_hindered(evidence, story):
            continue
        expected = story.expected()
        due = sorted(expected)
        for due_us, window in expected.items():
            arrivals = evidence.arrivals.get((story.job, due_us))
            if arrivals:
                yield from _late(evidence, report, arrivals[0], window)
                yield from _mislabelled(evidence, arrivals[0], window, due)


def is_hindered(evidence: Evidence, story: Story) -> bool:
    """Whether the worker itself may have made runs late: they wait for it, or it is left alone."""
    is_beside = all(one.overlap == "allow" for one in story.definitions.values())
    return any(
        arrival.answer != "ok"
        or (not is_beside and (arrival.answered_us or 0) - arrival.at_us > SLOW_US)
        for arrival in evidence.arrivals_of.get(story.job, ())
    )


def _late(
    evidence: Evidence, report: Report, arrival: Arrival, window: Window
) -> Iterator[Finding]:
    times = evidence.times
    jitter_us = window.definition.schedule.jitter_us
    due_us = times.instant_us(arrival.due_us, arrival.at_us) + jitter_us
    report.lateness_us.append(max(arrival.at_us - due_us, 0))
    if due_us < evidence.history.started_us + WARM_UP_US or due_us < window.known_us + SECOND_US:
        return
    faults = times.faults(due_us - RECOVERY_US - 10 * SECOND_US, arrival.at_us, HARMFUL)
    if not faults and arrival.at_us - due_us > PROMPT_US:
        yield Finding("late", arrival.job, arrival.due_us, f"{arrival.at_us - due_us} us")
    healed_us = max([due_us, *(fault.until_us for fault in faults)])
    if arrival.at_us - healed_us > RECOVERY_US:
        yield Finding("too_late", arrival.job, arrival.due_us, f"{arrival.at_us - healed_us} us")


def _mislabelled(
    evidence: Evidence, arrival: Arrival, window: Window, due: list[int]
) -> Iterator[Finding]:
    """By its time alone, an arrival in quiet times is that of the last due time before it."""
    times = evidence.times
    quiet_since_us = arrival.at_us - RECOVERY_US - 10 * SECOND_US
    if window.definition.schedule.jitter_us or times.faults(quiet_since_us, arrival.at_us):
        return
    if arrival.at_us < evidence.history.started_us + WARM_UP_US:
        return
    if times.instant_us(arrival.due_us, arrival.at_us) < window.known_us + SECOND_US:
        return  # it may have been armed as its job was before
    latest_us = times.database_us(arrival.at_us) + tolerance_us(evidence, arrival.at_us)
    place = bisect_right(due, latest_us)
    if place and due[place - 1] != arrival.due_us:
        yield Finding("mislabelled", arrival.job, arrival.due_us, f"{due[place - 1]}")
