"""Promise 8: changes hold."""

from collections.abc import Iterator

from tests.checker.excuses import TOLERANCE_US, is_unsettled
from tests.checker.findings import Evidence, Finding
from tests.checker.records import Arrival, Request
from tests.checker.story import ENDING, FOREVER_US, Story
from tests.checker.times import SECOND_US

PAST_US = 3_600 * SECOND_US  # what was due before that is taken for sent, and not named


def check(evidence: Evidence) -> Iterator[Finding]:
    for story in evidence.stories.values():
        received = evidence.arrivals_of.get(story.job, [])
        yield from _unwanted(evidence, story, received)
        yield from _old_self(evidence, story, received)
        yield from _cancelled(evidence, story)
        yield from _untold(evidence, story, received)


def _unwanted(evidence: Evidence, story: Story, received: list[Arrival]) -> Iterator[Finding]:
    allowed = story.allowed()
    for arrival in received:
        is_scheduled = arrival.trigger == "schedule"
        if (
            is_scheduled
            and arrival.due_us not in allowed
            and not evidence.is_retried(arrival)
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
                and not evidence.is_retried(arrival)
                and not is_unsettled(evidence, arrival.at_us)
                and not _was_cancelled_late(evidence, story, arrival.due_us, request)
            ):
                yield Finding("untold", story.job, arrival.due_us, f"{request.verb}")


def _was_cancelled_late(evidence: Evidence, story: Story, due_us: int, change: Request) -> bool:
    """Whether a change found a run cancelled by a client who was told that it may still be sent."""
    key = story.job, due_us
    ended_us = [
        evidence.times.instant_us(row.finished_at_us)
        for row in (evidence.runs.get(key), *evidence.overwritten.get(key, ()))
        if row is not None and row.state == "cancelled" and row.finished_at_us is not None
    ]
    return any(
        one.sent_us - TOLERANCE_US <= cancelled_us <= min(one.answered_us, change.answered_us)
        for one in story.requests
        if one.verb == "cancel" and one.due_us == due_us and one.result == "ok" and not one.in_time
        for cancelled_us in ended_us
    )


def _cancelled(evidence: Evidence, story: Story) -> Iterator[Finding]:
    for request in story.requests:
        if request.verb != "cancel" or request.result != "ok" or not request.in_time:
            continue
        assert request.due_us is not None
        retried_us = [
            one.sent_us
            for one in evidence.retries_of(story.job, request.due_us)
            if one.sent_us >= request.sent_us
        ]
        until_us = min(retried_us, default=FOREVER_US)
        for arrival in evidence.arrivals.get((story.job, request.due_us), []):
            is_after = request.answered_us < arrival.at_us < until_us
            if is_after and not is_unsettled(evidence, arrival.at_us):
                yield Finding("fired_while_cancelled", story.job, request.due_us, f"{arrival}")
