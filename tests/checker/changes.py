"""Promises 8 and 9: changes hold, and what must not overlap does not."""

from collections.abc import Iterator

from tests.checker.deliveries import is_unsettled, tolerance_us
from tests.checker.findings import Evidence, Finding
from tests.checker.records import Arrival, RunRow
from tests.checker.story import Story
from tests.checker.times import SECOND_US

WRITTEN_US = SECOND_US  # after its answer, an outcome is in the tables
LOSING = ("crash", "freeze", "store")  # what may keep it from there


def check(evidence: Evidence) -> Iterator[Finding]:
    for story in evidence.stories.values():
        received = evidence.arrivals_of.get(story.job, [])
        yield from _unwanted(evidence, story, received)
        yield from _old_self(evidence, story, received)
        yield from _cancelled(evidence, story)
        if all(one.overlap == "skip" for one in story.definitions.values()):
            yield from _overlapping(evidence, story)


def _unwanted(evidence: Evidence, story: Story, received: list[Arrival]) -> Iterator[Finding]:
    allowed = story.allowed()
    for arrival in received:
        is_scheduled = arrival.trigger == "schedule"
        if (
            is_scheduled
            and arrival.due_us not in allowed
            and not is_unsettled(evidence, arrival.at_us)
        ):
            yield Finding("fired_while_paused", story.job, arrival.due_us, f"{arrival.at_us}")


def _old_self(evidence: Evidence, story: Story, received: list[Arrival]) -> Iterator[Finding]:
    for arrival in received:
        least = story.mark_of(arrival.due_us, arrival.at_us)
        if arrival.mark < least and not is_unsettled(evidence, arrival.at_us):
            yield Finding(
                "old_self", story.job, arrival.due_us, f"{arrival.mark} instead of {least}"
            )


def _cancelled(evidence: Evidence, story: Story) -> Iterator[Finding]:
    for request in story.requests:
        if request.verb != "cancel" or request.result != "ok" or not request.in_time:
            continue
        assert request.due_us is not None
        for arrival in evidence.arrivals.get((story.job, request.due_us), []):
            if arrival.at_us > request.answered_us and not is_unsettled(evidence, arrival.at_us):
                yield Finding("fired_while_cancelled", story.job, request.due_us, f"{arrival}")


def _overlapping(evidence: Evidence, story: Story) -> Iterator[Finding]:
    """No run begins between the first arrival of another and its end in the tables."""
    runs = [
        (evidence.arrivals[run.job, run.due_us][0], run)
        for run in evidence.runs_of.get(story.job, [])
        if (run.job, run.due_us) in evidence.arrivals and run.state != "skipped"
    ]
    for first, _ in runs:
        for other, run in runs:
            if other.at_us >= first.at_us or run.finished_at_us is None:
                continue
            if _is_forgotten(evidence, run, first.at_us):
                continue
            over_us = run.finished_at_us - evidence.times.database_us(first.at_us)
            if over_us > tolerance_us(evidence, first.at_us) and not is_unsettled(
                evidence, first.at_us, over_us
            ):
                yield Finding(
                    "overlapping", story.job, first.due_us, f"{over_us} us with {run.due_us}"
                )


def _is_forgotten(evidence: Evidence, run: RunRow, at_us: int) -> bool:
    """Whether the next owner could not know that a run was sent: its outcome was not written.

    It goes out again, and is live from then on.
    """
    sent = [one for one in evidence.arrivals[run.job, run.due_us] if one.at_us < at_us][-1]
    tenure = evidence.tenure_of(sent)
    if tenure is None or tenure.ended != "taken_over":
        return False
    if (until_us := tenure.until_us or at_us) > at_us:
        return False
    written_us = min((sent.answered_us or until_us) + WRITTEN_US, until_us)
    faults = evidence.times.faults(sent.at_us, written_us, LOSING)
    return any(evidence.concerns(fault, tenure.shard) for fault in faults)
