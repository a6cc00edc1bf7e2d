"""Promise 9: what must not overlap does not; and what a later run has ended stays so."""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.excuses import declared_dead, is_doubtful, tolerance_us, unwritten_by
from tests.checker.findings import Evidence, Finding
from tests.checker.losses import losses
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
        (sent, end)
        for run in evidence.runs_of.get(story.job, [])
        for end, sent in evidence.lives_of(run)
        if sent
    ]
    for arrivals, _ in runs:
        for begun in _begun(arrivals):
            for others, run in runs:
                if (
                    others is not arrivals
                    and _is_live(evidence, run, others, begun)
                    and not _is_sent_in_ignorance(evidence, begun, others)
                ):
                    yield Finding("overlapping", story.job, begun.due_us, f"with {run.due_us}")


def _begun(arrivals: list[Arrival]) -> Iterator[Arrival]:
    """The first of a run, and those of the same attempt again: nobody knew that it was live."""
    yield arrivals[0]
    for earlier, later in pairwise(arrivals):
        if later.attempt <= earlier.attempt:
            yield later


def _is_live(evidence: Evidence, run: RunRow, arrivals: list[Arrival], begun: Arrival) -> bool:
    """Whether a run was sent before another, and had no end, and whoever sent that knew of it."""
    times, at_us = evidence.times, begun.at_us
    if arrivals[0].at_us >= at_us or run.finished_at_us is None:
        return False
    over_us = run.finished_at_us - times.database_us(at_us)
    if over_us <= tolerance_us(evidence, at_us) or times.is_stepped(arrivals[0].at_us, at_us):
        return False
    if is_doubtful(evidence, run.finished_at_us) or _is_end_lost(evidence, run, at_us):
        return False
    return not _is_forgotten(evidence, arrivals, begun)


def _is_sent_in_ignorance(evidence: Evidence, begun: Arrival, others: list[Arrival]) -> bool:
    """Whether who was falsely declared dead has sent a run beside another of the next owner."""
    sent = [one for one in others if one.at_us < begun.at_us][-1]
    is_next = sent.token >> 32 > begun.token >> 32
    return is_next and declared_dead(evidence, begun) is not None


def _is_end_lost(evidence: Evidence, run: RunRow, at_us: int) -> bool:
    """Whether a run had ended by an instant in a loss: the tables have a later end by now."""
    history, key = evidence.history, (run.job, run.due_us)
    if not any(loss.from_us <= at_us <= loss.until_us for loss in losses(history)):
        return False
    ends_us = [one.finished_at_us for one in history.forgotten if (one.job, one.due_us) == key]
    until_us = evidence.times.database_us(at_us) + tolerance_us(evidence, at_us)
    is_told = not history.forgotten  # then nobody knows
    return is_told or any(end_us is not None and end_us <= until_us for end_us in ends_us)


def _is_forgotten(evidence: Evidence, arrivals: list[Arrival], begun: Arrival) -> bool:
    """Whether the next owner could not know that a run was sent: its outcome was not written.

    It goes out again, and is live from then on. Of a further attempt it knew that there was one
    before; and who has sent it itself knew of it.
    """
    at_us = begun.at_us
    sent = [one for one in arrivals if one.at_us < at_us][-1]
    if _is_lost(evidence, sent, at_us):
        return True
    if sent.attempt > arrivals[0].attempt or sent.token >> 32 == begun.token >> 32:
        return False
    ownership = evidence.ownership_of(sent)
    if ownership is None or ownership.ended != "taken_over" or ownership.until_us is None:
        return False
    return (
        ownership.until_us <= at_us and unwritten_by(evidence, sent, ownership.until_us) is not None
    )


def _is_lost(evidence: Evidence, sent: Arrival, at_us: int) -> bool:
    """Whether the database has forgotten an attempt by then, or by now the end that it had then."""
    if unwritten_by(evidence, sent, at_us, ("loss",)) is None:
        return False
    has_ended = sent.answer == "ok" and (sent.answered_us or at_us) < at_us
    is_over = any(sent.at_us <= loss.until_us <= at_us for loss in losses(evidence.history))
    return is_over or has_ended


def _outlived(evidence: Evidence, story: Story) -> Iterator[Finding]:
    """A run that is due after another was sent ends it: that is not tried again."""
    grace_us = min(one.grace_us for one in story.definitions.values())
    runs = [
        sent
        for run in evidence.runs_of.get(story.job, [])
        for _, sent in evidence.lives_of(run)
        if sent
    ]
    on_time = [
        arrivals[0]
        for arrivals in runs
        if arrivals[0].trigger == "schedule"
        and not evidence.is_retried(arrivals[0])
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
    if _is_lost(evidence, before[-1], own.at_us):
        return own
    ownership = evidence.ownership_of(before[-1])
    return arrivals[0] if ownership is not None and ownership.ended == "released" else own


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
