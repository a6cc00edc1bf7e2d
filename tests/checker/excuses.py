"""What a fault explains, and for how long; what none of this covers is the product's own doing."""

from tests.checker.findings import Evidence
from tests.checker.records import Arrival, Fault
from tests.checker.times import SECOND_US

TOLERANCE_US = 15_000  # of the clock, and of a round trip
WRITTEN_US = SECOND_US  # an outcome is in the tables so long after it was about to be written
LOSING = ("crash", "freeze", "store")  # what may keep it from there
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


def unwritten_by(evidence: Evidence, sent: Arrival, until_us: int) -> Fault | None:
    """The fault that may have kept the outcome of an attempt out of the tables until an instant.

    It was everybody's, or that of who had sent it; and it came before the outcome was written.
    """
    tenure = evidence.tenure_of(sent)
    if sent.answered_us is not None:
        lag_us = 0 if tenure is None else evidence.lag_us(tenure.shard, sent.answered_us)
        until_us = min(until_us, sent.answered_us + lag_us + WRITTEN_US)
    for fault in evidence.times.faults(sent.at_us, until_us):
        if tenure is not None and not evidence.concerns(fault, tenure.shard):
            continue
        is_forced = fault.kind == "leave" and fault.until_us - fault.from_us >= DRAIN_US
        if fault.kind in LOSING or is_forced:
            return fault
    return None
