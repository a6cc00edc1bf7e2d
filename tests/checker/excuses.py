"""What a fault explains, and for how long; what none of this covers is the product's own doing."""

from tests.checker.findings import Evidence
from tests.checker.losses import TRUSTED_US, is_forgotten, loss_of_acceptance, losses
from tests.checker.records import Arrival, Fault
from tests.checker.times import SECOND_US

TOLERANCE_US = 15_000  # of the clock, and of a round trip
WRITTEN_US = SECOND_US  # an outcome is in the tables so long after it was about to be written
LOSING = ("crash", "freeze", "store", "loss", "false_death")  # what may keep it from there
AROUND = ("worker", "api", "link")  # what a shard knows nothing of
DRAIN_US = 29 * SECOND_US  # a shard that leaves finishes what it has sent, within bounds
SETTLES_US = 5 * SECOND_US  # a step is believed at the third reading, and there is one a second
BLINDING = ("store", "freeze")  # what may keep a shard from reading


def tolerance_us(evidence: Evidence, at_us: int) -> int:
    """How exact a shard's clock has to be: as exact as it says that it is."""
    times = evidence.times
    return TOLERANCE_US + times.error_us(at_us) + times.slewed_us(at_us)


def is_unsettled(evidence: Evidence, at_us: int) -> bool:
    """Whether a shard may not have noticed by then that the clock was set to another time."""
    return any(
        step_us <= at_us <= whole_since(evidence, step_us, SETTLES_US, BLINDING)
        for step_us in evidence.times.steps_us
    )


def is_doubtful(evidence: Evidence, taken_us: int) -> bool:
    """Whether a shard may have taken a time for the database's that was not so any more."""
    offsets_us = (0, *(offset.offset_us for offset in evidence.history.offsets))
    return any(is_unsettled(evidence, taken_us - offset_us) for offset_us in offsets_us)


def whole_since(evidence: Evidence, from_us: int, for_us: int, kinds: tuple[str, ...]) -> int:
    """When nothing of some kinds was broken for so long, from an instant on."""
    whole_us, before_us = from_us + for_us, from_us
    while before_us < whole_us:
        before_us = whole_us
        for fault in evidence.times.faults(from_us, whole_us, kinds):
            whole_us = max(whole_us, fault.until_us + for_us)
    return whole_us


def unwritten_by(
    evidence: Evidence, sent: Arrival, until_us: int, kinds: tuple[str, ...] = LOSING
) -> Fault | None:
    """The fault that may have kept the outcome of an attempt out of the tables until an instant.

    It was everybody's, or that of who had sent it; and it came before the outcome was written.
    An outcome that its worker knows to be written was so: only a loss takes it away.
    """
    if sent.accepted_us is not None and sent.accepted_us <= until_us:
        return loss_of_acceptance(evidence.history, sent)
    ownership = evidence.ownership_of(sent)
    if sent.answered_us is not None:
        lag_us = 0 if ownership is None else evidence.lag_us(ownership.shard, sent.answered_us)
        written_us = sent.answered_us + lag_us + WRITTEN_US
        if sent.queue:  # a worker that pulls reports it again until somebody takes it
            written_us = whole_since(evidence, sent.answered_us, lag_us + WRITTEN_US, AROUND)
        until_us = min(until_us, written_us)
    for fault in evidence.times.faults(sent.at_us, until_us):
        if ownership is not None and not evidence.concerns(fault, ownership.shard):
            continue
        is_long = fault.until_us - fault.from_us >= DRAIN_US
        is_forced = kinds == LOSING and fault.kind == "leave" and is_long
        if fault.kind in kinds or is_forced:
            return fault
    return None


def declared_dead(evidence: Evidence, sent: Arrival) -> Fault | None:
    """The lie about who has sent something: it was said to be dead, and may not know that yet."""
    ownership = evidence.ownership_of(sent)
    for lie in evidence.times.faults(sent.at_us, sent.at_us, ("false_death",)):
        if ownership is not None and evidence.concerns(lie, ownership.shard):
            return lie
    return None


def is_row_lost(evidence: Evidence, job: str, due_us: int) -> bool:
    """Whether a loss has taken the row of a run that was sent, and no other was written for it:
    what made it is lost, a skip stands for it, or a transaction has cancelled its job before a
    shard could plan that again."""
    history, arrivals = evidence.history, evidence.arrivals[job, due_us]
    first_us, last_us = arrivals[0].at_us, arrivals[-1].at_us
    if is_forgotten(history, job, last_us):
        return True
    is_skipped = any(
        run.missed_since_us is not None and run.missed_since_us <= due_us <= run.due_us
        for run in evidence.runs_of.get(job, ())
    )
    story = evidence.stories.get(job)
    is_unplanned = story is not None and any(
        one.verb == "delete" and one.written_us is not None and one.result != "failed"
        for one in story.requests
    )
    return (is_skipped or is_unplanned) and any(
        loss.from_us <= first_us and last_us <= loss.until_us + TRUSTED_US
        for loss in losses(history)
    )
