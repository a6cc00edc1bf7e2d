"""Promises 3 and 4: epochs grow, each has one owner, and who was taken over does nothing more."""

from collections.abc import Iterator

from tests.checker.excuses import TOLERANCE_US
from tests.checker.findings import Evidence, Finding
from tests.checker.records import Tenure

MARGIN_US = 500_000  # how long before the end of its lease a shard sends nothing any more


def check(evidence: Evidence) -> Iterator[Finding]:
    tenures: dict[tuple[int, int], Tenure] = {}
    for tenure in sorted(evidence.history.tenures, key=lambda tenure: tenure.from_us):
        if (tenure.partition, tenure.epoch) in tenures:
            yield Finding("two_owners", "", 0, f"{tenure.partition} {tenure.epoch}")
        tenures[tenure.partition, tenure.epoch] = tenure
    yield from _growing(evidence)
    if tenures:
        yield from _sent(evidence, tenures)
        yield from _armed(evidence, tenures)


def _growing(evidence: Evidence) -> Iterator[Finding]:
    latest = {row.partition: row.epoch for row in evidence.history.partitions}
    seen: dict[int, int] = {}
    for tenure in sorted(evidence.history.tenures, key=lambda tenure: tenure.from_us):
        if tenure.epoch <= seen.get(tenure.partition, 0):
            yield Finding("epoch_order", "", 0, f"{tenure}")
        seen[tenure.partition] = tenure.epoch
    for run in evidence.history.runs:
        if run.token is not None and run.token >> 32 > latest[run.partition]:
            yield Finding("wrong_epoch", run.job, run.due_us, f"{run.token >> 32}")


def _sent(evidence: Evidence, tenures: dict[tuple[int, int], Tenure]) -> Iterator[Finding]:
    """Nothing is sent under an epoch before it began, nor after its owner was taken over."""
    for arrival in evidence.history.arrivals:
        partition = evidence.partitions.get(arrival.job)
        if partition is None:
            continue
        tenure = tenures.get((partition, arrival.token >> 32))
        if tenure is None or arrival.at_us < tenure.from_us:
            yield Finding("wrong_epoch", arrival.job, arrival.due_us, f"{arrival.token >> 32}")
        elif tenure.ended == "taken_over" and tenure.until_us is not None:
            late_us = arrival.at_us - tenure.until_us
            if late_us > TOLERANCE_US + max(evidence.history.transit_us - MARGIN_US, 0):
                yield Finding("sent_after_takeover", arrival.job, arrival.due_us, f"{late_us} us")


def _armed(evidence: Evidence, tenures: dict[tuple[int, int], Tenure]) -> Iterator[Finding]:
    """Whoever claims a run owns its partition, by the token of the claim and at its instant."""
    for run in (*evidence.history.overwritten, *evidence.history.runs):
        if run.token is None or run.armed_at_us is None:
            continue
        instants_us = evidence.times.instants_us(run.armed_at_us)
        if not any(_is_owned(evidence, run.partition, at_us) for at_us in instants_us):
            yield Finding("armed_after_tenure", run.job, run.due_us, "while nobody owned it")
        tenure = tenures.get((run.partition, run.token >> 32))
        if tenure is None or run.shard not in (tenure.shard, None):
            yield Finding("wrong_owner", run.job, run.due_us, f"{run.token >> 32} {run.shard}")
        elif tenure.until_us is not None:
            late_us = min(instants_us) - tenure.until_us
            if late_us > TOLERANCE_US:
                yield Finding("armed_after_tenure", run.job, run.due_us, f"{late_us} us")


def _is_owned(evidence: Evidence, partition: int, at_us: int) -> bool:
    """Whether a partition had an owner; a takeover and a claim are ordered by the database."""
    return any(
        tenure.from_us <= at_us <= (tenure.until_us or at_us)
        for tenure in evidence.tenures_of.get(partition, ())
    )
