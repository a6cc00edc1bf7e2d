"""Promise 1, and what stands around it: every due time is accounted for, and nothing else is."""

from collections.abc import Iterator

from tests.checker.deliveries import is_unsettled
from tests.checker.findings import Evidence, Finding
from tests.checker.oracle import due_times
from tests.checker.records import RunRow
from tests.checker.story import Story

FINAL = ("succeeded", "dead", "skipped", "cancelled")
WITHDRAWN = ("paused", "edited", "deleted")  # by a change that came before it was sent


def check(evidence: Evidence) -> Iterator[Finding]:
    for run in evidence.twice:
        yield Finding("armed_twice", run.job, run.due_us, "two rows")
    for story in evidence.stories.values():
        runs = evidence.runs_of.get(story.job, [])
        yield from _lost(evidence, story, runs)
        yield from _invented(evidence, story, runs)
        yield from _counts(story, runs)
    yield from _stuck(evidence)


def _lost(evidence: Evidence, story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    rows = {run.due_us for run in runs if run.missed_since_us is None}
    stretches = [
        (run.missed_since_us, run.due_us) for run in runs if run.missed_since_us is not None
    ]
    times, history = evidence.times, evidence.history
    for due_us, window in story.expected().items():
        if due_us in rows or any(first <= due_us <= last for first, last in stretches):
            continue
        if due_us > times.database_us(history.healed_us):
            continue
        yield Finding("lost", story.job, due_us, f"window until {window.until_us}")


def _invented(evidence: Evidence, story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    allowed = story.allowed()
    for run in runs:
        is_known = run.trigger != "schedule" or run.due_us in allowed
        if not is_known and not is_unsettled(evidence, run.due_us):
            if run.state == "skipped" and (
                run.missed_since_us in allowed or run.skip_reason in WITHDRAWN
            ):
                continue
            yield Finding("invented", run.job, run.due_us, f"{run.state} {run.skip_reason}")


def _counts(story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    """A row that stands for several due times names as many as there are."""
    for run in runs:
        if run.missed_since_us is None or run.missed_count is None:
            continue
        counts = {
            len(due_times(one.schedule, run.missed_since_us - 1, run.due_us))
            for one in story.definitions.values()
        }
        if run.missed_count not in counts:
            yield Finding("miscounted", run.job, run.due_us, f"{run.missed_count} not {counts}")


def _stuck(evidence: Evidence) -> Iterator[Finding]:
    healed_us = evidence.times.database_us(evidence.history.healed_us)
    for run in evidence.history.runs:
        if run.state not in FINAL and run.due_us <= healed_us:
            yield Finding("stuck", run.job, run.due_us, f"{run.state} {run.trigger}")
