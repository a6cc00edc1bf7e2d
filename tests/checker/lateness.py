"""How late runs were, and whether a fault explains it. And the blind look at labels."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tests.checker.excuses import tolerance_us
from tests.checker.findings import Evidence, Finding, Report
from tests.checker.records import Arrival
from tests.checker.story import Story, Window
from tests.checker.times import SECOND_US

PROMPT_US = SECOND_US + 100_000  # a hand-over takes a second at most
RECOVERY_US = 16 * SECOND_US  # from the end of a fault to the first fire
DRAINED_PER_S = 2_800  # of a crowd that a fault held up, at least: the rate of the design
SLOW_US = 100_000
AROUND_US = 2 * SECOND_US  # when one run is plainly late, so are others
ON_THE_DOT_US = 50_000
WARM_UP_US = 3 * SECOND_US
HARMFUL = ("crash", "freeze", "store", "clock", "deaf", "down", "stall")


def check(evidence: Evidence, report: Report) -> Iterator[Finding]:
    crowds: dict[int, list[int]] = {}  # of each second, when what was due in it arrived
    for (_, due_us), (first, *_) in evidence.arrivals.items():
        crowds.setdefault(due_us // SECOND_US, []).append(first.at_us)
    for crowd in crowds.values():
        crowd.sort()
    prompt = {
        name: story.expected()
        for name, story in evidence.stories.items()
        if not is_hindered(evidence, story)
    }
    late_us = sorted(_plainly_late(evidence, prompt))
    for name, expected in prompt.items():
        for due_us, window in expected.items():
            arrivals = evidence.arrivals.get((name, due_us))
            if arrivals and not evidence.is_retried(arrivals[0]):
                crowd = crowds[due_us // SECOND_US]
                yield from _late(evidence, report, arrivals[0], window, crowd)
        yield from _mislabelled(evidence, name, expected, late_us)


def is_hindered(evidence: Evidence, story: Story) -> bool:
    """Whether the worker itself may have made runs late: they wait for it, or it is left alone."""
    definitions = story.definitions.values()
    if any(one.queue for one in definitions):
        return True  # its workers may be few
    is_allowed = all(one.overlap == "allow" for one in definitions)
    is_beside = is_allowed and not evidence.history.is_narrow
    timeout_us = min((one.timeout_us for one in definitions), default=0)
    patience_us = max(timeout_us - SLOW_US, SLOW_US) if is_beside else SLOW_US
    return any(
        arrival.answer != "ok" or (arrival.answered_us or 0) - arrival.at_us > patience_us
        for arrival in evidence.arrivals_of.get(story.job, ())
    )


def _late(
    evidence: Evidence, report: Report, arrival: Arrival, window: Window, crowd: list[int]
) -> Iterator[Finding]:
    """Whether a run was late; `crowd` is when those arrived that were due in the same second."""
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
    ahead = bisect_left(crowd, arrival.at_us) - bisect_left(crowd, healed_us)
    if arrival.at_us - healed_us > RECOVERY_US + ahead * SECOND_US // DRAINED_PER_S:
        yield Finding("too_late", arrival.job, arrival.due_us, f"{arrival.at_us - healed_us} us")


def _plainly_late(evidence: Evidence, prompt: dict[str, dict[int, Window]]) -> Iterator[int]:
    """When runs arrived late and on no dot of their job: no other label would make them prompt."""
    for name, expected in prompt.items():
        due = sorted(expected)
        for due_us in due:
            jitter_us = expected[due_us].definition.schedule.jitter_us
            for arrival in evidence.arrivals.get((name, due_us), ())[:1]:
                meant_us = evidence.times.instant_us(due_us, arrival.at_us) + jitter_us
                is_late = arrival.at_us - meant_us > PROMPT_US
                if evidence.is_retried(arrival):
                    continue
                if is_late and _blind(evidence, arrival, due) is None:
                    yield arrival.at_us


def _mislabelled(
    evidence: Evidence, name: str, expected: dict[int, Window], late_us: list[int]
) -> Iterator[Finding]:
    """By time alone, what arrives on the dot of a due time in quiet times is that of this one.

    Whatever it says; unless that one is there on the dot itself: then the other is merely late. And
    unless others are plainly late around then: what is late comes on the dot of another by chance.
    """
    due = sorted(expected)
    on_the_dot: dict[int, set[int]] = {}
    for arrival in evidence.arrivals_of.get(name, ()):
        due_us = _blind(evidence, arrival, due)
        if due_us is None or _is_around(late_us, arrival.at_us) or evidence.is_retried(arrival):
            continue
        if _is_quiet(evidence, arrival.at_us, due_us, expected[due_us]):
            on_the_dot.setdefault(due_us, set()).add(arrival.due_us)
    for due_us, said in on_the_dot.items():
        if due_us not in said:
            yield Finding("mislabelled", name, due_us, f"says {said}")


def _is_around(times_us: list[int], at_us: int) -> bool:
    """Whether one of the times, which are sorted, is close."""
    place = bisect_left(times_us, at_us - AROUND_US)
    return place < len(times_us) and times_us[place] <= at_us + AROUND_US


def _blind(evidence: Evidence, arrival: Arrival, due: list[int]) -> int | None:
    """The due time on whose dot something scheduled arrives."""
    latest_us = evidence.times.database_us(arrival.at_us) + tolerance_us(evidence, arrival.at_us)
    place = bisect_right(due, latest_us)
    if arrival.trigger != "schedule" or not place or latest_us - due[place - 1] > ON_THE_DOT_US:
        return None
    return due[place - 1]


def _is_quiet(evidence: Evidence, at_us: int, due_us: int, window: Window) -> bool:
    quiet_since_us = at_us - RECOVERY_US - 10 * SECOND_US
    if window.definition.schedule.jitter_us or evidence.times.faults(quiet_since_us, at_us):
        return False
    if at_us < evidence.history.started_us + WARM_UP_US:
        return False
    # Until then it may have been armed as its job was before.
    return evidence.times.instant_us(due_us, at_us) >= window.known_us + SECOND_US
