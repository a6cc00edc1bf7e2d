"""Promise 9: what must not overlap does not; and what a later run has ended stays so."""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.excuses import is_doubtful, tolerance_us, unwritten_by
from tests.checker.findings import Evidence, Finding
from tests.checker.records import Arrival, RunRow
from tests.checker.story import Story
from tests.checker.times import SECOND_US

ONE_AT_A_TIME = {"skip", "queue"}


def check(evidence: Evidence) -> Iterator[Finding]:
    for story in evidence.stories.values():
        policies = {one.overlap for one in story.definitions.values()}
        if policies <= ONE_AT_A_TIME:
            yield from _overlapping(evidence, story)
        if policies == {"cancel"}:
            yield from _outlived(evidence, story)


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

    It goes out again, and is live from then on. Of a further attempt it knew that there was one
    before.
    """
    sent = [one for one in arrivals if one.at_us < at_us][-1]
    if sent.attempt > arrivals[0].attempt:
        return False
    tenure = evidence.tenure_of(sent)
    if tenure is None or tenure.ended != "taken_over" or tenure.until_us is None:
        return False
    return tenure.until_us <= at_us and unwritten_by(evidence, sent, tenure.until_us) is not None


def _outlived(evidence: Evidence, story: Story) -> Iterator[Finding]:
    """A run that is due after another was sent ends it: that is not tried again."""
    grace_us = min(one.grace_us for one in story.definitions.values())
    runs = [
        evidence.arrivals[run.job, run.due_us]
        for run in evidence.runs_of.get(story.job, [])
        if (run.job, run.due_us) in evidence.arrivals
    ]
    on_time = [
        arrivals[0]
        for arrivals in runs
        if arrivals[0].trigger == "schedule"
        and evidence.times.database_us(arrivals[0].at_us) - arrivals[0].due_us < grace_us
    ]
    for arrivals in runs:
        for again in arrivals:
            first = _known_since(evidence, arrivals, again.token >> 32)
            for later in on_time:
                if _should_have_ended(evidence, first, later, again):
                    detail = f"attempt {again.attempt}, after {later.due_us}"
                    yield Finding("outlived", story.job, first.due_us, detail)


def _known_since(evidence: Evidence, arrivals: list[Arrival], epoch: int) -> Arrival:
    """The arrival by which an owner knew that a run was sent: one of its own, if it has taken over
    from who had sent it and it went out as if for the first time."""
    own = next(one for one in arrivals if one.token >> 32 == epoch)
    before = [one for one in arrivals if one.token >> 32 < epoch]
    if not before or own.attempt > arrivals[0].attempt:
        return arrivals[0]
    tenure = evidence.tenure_of(before[-1])
    return arrivals[0] if tenure is not None and tenure.ended == "released" else own


def _should_have_ended(evidence: Evidence, first: Arrival, later: Arrival, again: Arrival) -> bool:
    """Whether a run was sent, then a later one, and by the owner who did that the first again."""
    if later.token >> 32 != again.token >> 32:
        return False
    if not first.at_us < later.at_us < again.at_us - SECOND_US:  # it may have been on its way
        return False
    if evidence.times.is_stepped(first.at_us, again.at_us):
        return False
    return later.due_us > evidence.times.database_us(first.at_us) + tolerance_us(
        evidence, first.at_us
    )
