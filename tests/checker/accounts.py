"""Promise 1, and what stands around it: every due time is accounted for, and nothing else is."""

from collections.abc import Iterator

from tests.checker.excuses import is_doubtful, tolerance_us
from tests.checker.findings import Evidence, Finding
from tests.checker.oracle import due_times
from tests.checker.records import FINAL, RunRow
from tests.checker.story import Story
from tests.checker.times import SECOND_US

RECOVERY_US = 16 * SECOND_US  # from the end of a fault until somebody owns everything again
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
    if not runs and _was_never_planned(evidence, story):
        return
    times, history = evidence.times, evidence.history
    stretches = [
        (run.missed_since_us, story.told_until_us(run))
        for run in runs
        if run.missed_since_us is not None
    ]
    for due_us, window in story.expected().items():
        if due_us in rows or any(first <= due_us <= last for first, last in stretches):
            continue
        if due_us > times.database_us(history.healed_us):
            continue
        yield Finding("lost", story.job, due_us, f"window until {window.until_us}")


def _was_never_planned(evidence: Evidence, story: Story) -> bool:
    """Whether a transaction has cancelled a job before any shard could know of it.

    It never was active then. A shard that is there hears of it within a second.
    """
    created_us = [one.answered_us for one in story.requests if one.verb == "create"]
    deleted_us = [
        one.written_us
        for one in story.requests
        if one.verb == "delete" and one.written_us is not None and one.result != "failed"
    ]
    if not deleted_us:
        return False
    since_us, until_us = min(created_us), min(deleted_us)
    return until_us < since_us + SECOND_US or bool(
        evidence.times.faults(since_us - RECOVERY_US, until_us)
    )


def _invented(evidence: Evidence, story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    allowed = story.allowed()
    for run in runs:
        is_known = run.trigger != "schedule" or run.due_us in allowed
        if not is_known and not (
            is_doubtful(evidence, run.due_us) and _was_ever_due(story, run.due_us)
        ):
            if run.state == "skipped" and (
                run.missed_since_us in allowed
                or (run.skip_reason in WITHDRAWN and _was_ever_due(story, run.due_us))
            ):
                continue
            if (
                (run.state == "cancelled" and _was_asked(evidence, story, run))
                or (run.job, run.due_us) in evidence.revived
            ) and _was_ever_due(story, run.due_us):
                continue
            yield Finding("invented", run.job, run.due_us, f"{run.state} {run.skip_reason}")


def _was_asked(evidence: Evidence, story: Story, run: RunRow) -> bool:
    """Whether somebody has cancelled a run that was armed ahead, or deleted its job after that, of
    which a shard that carries a run hears only when it looks for the last time."""
    return any(
        (one.verb == "cancel" and one.due_us == run.due_us)
        or (one.verb == "delete" and _is_armed_by(evidence, run, one.answered_us))
        for one in story.requests
        if one.result != "failed"
    )


def _is_armed_by(evidence: Evidence, run: RunRow, at_us: int) -> bool:
    if run.armed_at_us is None:
        return False
    return evidence.times.instants_us(run.armed_at_us)[0] <= at_us + tolerance_us(evidence, at_us)


def _was_ever_due(story: Story, due_us: int) -> bool:
    """Whether it is a due time of any schedule that a job has had: it may have been armed ahead."""
    return any(due_times(one.schedule, due_us - 1, due_us) for one in story.definitions.values())


def _counts(story: Story, runs: list[RunRow]) -> Iterator[Finding]:
    """A row that stands for several due times names as many as there are."""
    for run in runs:
        if run.missed_since_us is None:
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
