"""Promises 8 and 9: changes hold, and what must not overlap does not."""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.excuses import is_doubtful, is_unsettled, tolerance_us, unwritten_by
from tests.checker.findings import Evidence, Finding
from tests.checker.records import Arrival, RunRow
from tests.checker.story import ENDING, Story
from tests.checker.times import SECOND_US

PAST_US = 3_600 * SECOND_US  # what was due before that is taken for sent, and not named


def check(evidence: Evidence) -> Iterator[Finding]:
    for story in evidence.stories.values():
        received = evidence.arrivals_of.get(story.job, [])
        yield from _unwanted(evidence, story, received)
        yield from _old_self(evidence, story, received)
        yield from _cancelled(evidence, story)
        yield from _untold(evidence, story, received)
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
        # A clock that was set back comes to the due time again; another attempt is of the first.
        first = evidence.arrivals[story.job, arrival.due_us][0]
        least = story.mark_of(arrival.due_us, first.at_us)
        if arrival.mark < least and not is_unsettled(evidence, arrival.at_us):
            yield Finding(
                "old_self", story.job, arrival.due_us, f"{arrival.mark} instead of {least}"
            )


def _untold(evidence: Evidence, story: Story, received: list[Arrival]) -> Iterator[Finding]:
    """What a change came too late for, and is first sent after its answer, is named in it."""
    for request in story.requests:
        is_stop = request.verb in ENDING or request.is_rescheduled
        if not is_stop or request.result != "ok" or request.written_us is not None:
            continue
        told_us = evidence.times.database_us(request.answered_us)
        due_after = story.allowed(request.sent_us)
        for arrival in received:
            if (
                arrival.trigger == "schedule"
                and arrival.at_us > request.answered_us
                and arrival.due_us > told_us - PAST_US
                and arrival.due_us not in due_after.union(request.too_late)
                and arrival is evidence.arrivals[story.job, arrival.due_us][0]
                and not is_unsettled(evidence, arrival.at_us)
            ):
                yield Finding("untold", story.job, arrival.due_us, f"{request.verb}")


def _cancelled(evidence: Evidence, story: Story) -> Iterator[Finding]:
    for request in story.requests:
        if request.verb != "cancel" or request.result != "ok" or not request.in_time:
            continue
        assert request.due_us is not None
        for arrival in evidence.arrivals.get((story.job, request.due_us), []):
            if arrival.at_us > request.answered_us and not is_unsettled(evidence, arrival.at_us):
                yield Finding("fired_while_cancelled", story.job, request.due_us, f"{arrival}")


def _overlapping(evidence: Evidence, story: Story) -> Iterator[Finding]:
    """No run begins, or begins again, between an arrival of another and its end in the tables."""
    runs = [
        (evidence.arrivals[run.job, run.due_us], run)
        for run in evidence.runs_of.get(story.job, [])
        if (run.job, run.due_us) in evidence.arrivals
    ]
    for arrivals, _ in runs:
        for begun in _begun(arrivals):
            for others, run in runs:
                if others is not arrivals and _is_live(evidence, run, others, begun.at_us):
                    yield Finding("overlapping", story.job, begun.due_us, f"with {run.due_us}")


def _begun(arrivals: list[Arrival]) -> Iterator[Arrival]:
    """The first of a run, and those of the same attempt again: nobody knew that it was live."""
    yield arrivals[0]
    for earlier, later in pairwise(arrivals):
        if later.attempt <= earlier.attempt:
            yield later


def _is_live(evidence: Evidence, run: RunRow, arrivals: list[Arrival], at_us: int) -> bool:
    """Whether a run was sent before, and had no end, or was forgotten by whoever owned it then."""
    times = evidence.times
    if arrivals[0].at_us >= at_us or run.finished_at_us is None:
        return False
    over_us = run.finished_at_us - times.database_us(at_us)
    if over_us <= tolerance_us(evidence, at_us) or times.is_stepped(arrivals[0].at_us, at_us):
        return False
    if is_doubtful(evidence, run.finished_at_us):
        return False
    return not _is_forgotten(evidence, arrivals, at_us)


def _is_forgotten(evidence: Evidence, arrivals: list[Arrival], at_us: int) -> bool:
    """Whether the next owner could not know that a run was sent: its outcome was not written.

    It goes out again, and is live from then on.
    """
    sent = [one for one in arrivals if one.at_us < at_us][-1]
    tenure = evidence.tenure_of(sent)
    if tenure is None or tenure.ended != "taken_over" or tenure.until_us is None:
        return False
    return tenure.until_us <= at_us and unwritten_by(evidence, sent, tenure.until_us) is not None
