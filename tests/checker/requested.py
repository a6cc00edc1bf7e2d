"""Runs by hand: each request that was answered made its runs, and none made them twice.

A request is one, however often it was sent with its key. Whoever knows of no answer permits its
runs, once.
"""

from collections import Counter
from collections.abc import Iterator

from tests.checker.excuses import whole_since
from tests.checker.findings import Evidence, Finding
from tests.checker.oracle import due_times
from tests.checker.records import Request, RunRow
from tests.checker.story import Story
from tests.checker.times import SECOND_US

HOLDING = ("store",)  # what may hold a statement back
TOLERANCE_US = 20_000  # a backfill is due in the microseconds after it was asked for


def check(evidence: Evidence) -> Iterator[Finding]:
    for story in evidence.stories.values():
        runs = evidence.runs_of.get(story.job, [])
        yield from _triggers(evidence, story, [run for run in runs if run.trigger == "manual"])
        yield from _backfills(evidence, story, [run for run in runs if run.trigger == "backfill"])
    for run in evidence.history.runs:
        for arrival in evidence.arrivals.get((run.job, run.due_us), []):
            scheduled_us = run.due_us if run.backfill_of_us is None else run.backfill_of_us
            if (arrival.scheduled_us, arrival.trigger) != (scheduled_us, run.trigger):
                yield Finding("contradicted", run.job, run.due_us, f"{arrival.scheduled_us}")


def _triggers(evidence: Evidence, story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    asked = [request for request in story.requests if request.verb == "trigger"]
    there = {run.due_us for run in runs}
    told = Counter(request.due_us for request in asked if request.result == "ok")
    for due_us, count in told.items():
        if due_us is None or due_us not in there:
            yield Finding("lost", story.job, due_us or 0, "a trigger")
        elif count > 1:
            yield Finding("lost", story.job, due_us, f"{count} triggers are one run")
    open_requests = sorted(_unknown(asked), key=lambda request: request.answered_us)
    for due_us in sorted(there - told.keys()):
        matching = [one for one in open_requests if _may_have_made(evidence, one, due_us)]
        if matching:
            open_requests.remove(matching[0])
        else:
            yield Finding("requested_twice", story.job, due_us, "by hand, and nobody asked for it")


def _backfills(evidence: Evidence, story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    asked = [request for request in story.requests if request.verb == "backfill"]
    filled = {run.due_us: run.backfill_of_us for run in runs}
    told: Counter[int] = Counter()
    for request in asked:
        if request.result != "ok":
            continue
        told.update(request.filled_us)
        wanted = _wanted(story, request)
        if (made := [filled.get(due_us) for due_us in request.filled_us]) not in wanted:
            detail = f"{len(made)} runs for one of {[len(times) for times in wanted]} due times"
            yield Finding("misfilled", story.job, request.since_us, detail)
    for due_us, count in told.items():
        if due_us not in filled or count > 1:
            yield Finding("lost", story.job, due_us, f"of {count} backfills")
    makers: set[tuple[int, int | None]] = set()  # by which request, and for which due time
    for due_us in sorted(filled.keys() - told.keys()):
        may_have = (
            (request.sent_us, filled[due_us])
            for request in _unknown(asked)
            if _may_have_made(evidence, request, due_us)
            and any(filled[due_us] in times for times in _wanted(story, request))
        )
        maker = next((each for each in may_have if each not in makers), None)
        if maker is None:
            yield Finding("requested_twice", story.job, due_us, f"backfill of {filled[due_us]}")
        else:
            makers.add(maker)


def _unknown(asked: list[Request]) -> list[Request]:
    return [request for request in asked if request.result == "unknown"]


def _wanted(story: Story, request: Request) -> list[list[int]]:
    """The due times in the range of a backfill, by each schedule that its job has ever had."""
    return [
        due_times(definition.schedule, request.since_us - 1, request.until_us - 1)
        for definition in story.definitions.values()
    ]


def _may_have_made(evidence: Evidence, request: Request, due_us: int) -> bool:
    """Whether a run became due while its request was under way; the clock may have been set.

    A statement that a fault held back is done after it, though nobody waits for it any more.
    """
    times, over_us = evidence.times, request.answered_us
    if times.faults(request.sent_us, request.answered_us, HOLDING):
        over_us = whole_since(evidence, request.answered_us, SECOND_US, HOLDING)
    if times.is_stepped(request.sent_us - SECOND_US, over_us + SECOND_US):
        return True
    since_us, until_us = map(times.database_us, (request.sent_us, over_us))
    return since_us - TOLERANCE_US <= due_us <= until_us + TOLERANCE_US
