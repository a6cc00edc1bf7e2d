"""Promises 3, 4 and 12: epochs grow, each has one owner, and who was taken over, or is not known to
the database any more, does nothing more. Nobody is taken over who could have renewed.
"""

from collections.abc import Iterator

from tests.checker.excuses import TOLERANCE_US, declared_dead, whole_since
from tests.checker.findings import Evidence, Finding
from tests.checker.records import Ownership
from tests.checker.times import SECOND_US

MARGIN_US = 500_000  # how long before the end of its lease a shard sends nothing any more
NOTICED_US = 2 * SECOND_US  # by when a shard knows that the database went back, once it is there
HIDING = ("store", "freeze", "crash", "stall")
LEASE_US = 7 * SECOND_US  # within which who is taken over was kept from renewing
ALONE_US = 250_000  # for so long at least, if alone: until it has connected again it seems gone
TOGETHER_US = 3 * SECOND_US  # or together with all others
HOLDING_UP = ("freeze", "store", "stall", "loss", "false_death")


def check(evidence: Evidence) -> Iterator[Finding]:
    ownerships: dict[tuple[int, int], Ownership] = {}
    for ownership in _taken(evidence):
        if (ownership.partition, ownership.epoch) in ownerships:
            yield Finding("two_owners", "", 0, f"{ownership.partition} {ownership.epoch}")
        ownerships[ownership.partition, ownership.epoch] = ownership
    yield from _growing(evidence)
    yield from _robbed(evidence)
    if ownerships:
        yield from _sent(evidence, ownerships)
        yield from _armed(evidence, ownerships)


def _taken(evidence: Evidence) -> list[Ownership]:
    """In the order in which somebody has taken them."""
    taken = (one for one in evidence.history.ownerships if not one.is_restored)
    return sorted(taken, key=lambda ownership: ownership.from_us)


def _growing(evidence: Evidence) -> Iterator[Finding]:
    latest = {row.partition: row.epoch for row in evidence.history.partitions}
    seen: dict[int, int] = {}
    for ownership in _taken(evidence):
        if ownership.epoch <= seen.get(ownership.partition, 0):
            yield Finding("epoch_order", "", 0, f"{ownership}")
        seen[ownership.partition] = ownership.epoch
    for run in evidence.history.runs:
        if run.token is not None and run.token >> 32 > latest[run.partition]:
            yield Finding("wrong_epoch", run.job, run.due_us, f"{run.token >> 32}")


def _sent(evidence: Evidence, ownerships: dict[tuple[int, int], Ownership]) -> Iterator[Finding]:
    """Nothing is sent under an epoch before it began, nor after its owner was taken over."""
    for arrival in evidence.history.arrivals:
        partition = evidence.partitions.get(arrival.job)
        if partition is None:
            continue
        ownership = ownerships.get((partition, arrival.token >> 32))
        if ownership is None or arrival.at_us < ownership.from_us:
            yield Finding("wrong_epoch", arrival.job, arrival.due_us, f"{arrival.token >> 32}")
        elif ownership.ended == "taken_over" and ownership.until_us is not None:
            late_us = arrival.at_us - ownership.until_us
            if late_us > TOLERANCE_US + max(
                evidence.history.transit_us - MARGIN_US, 0
            ) and not declared_dead(evidence, arrival):
                yield Finding("sent_after_takeover", arrival.job, arrival.due_us, f"{late_us} us")
        elif ownership.ended == "forgotten" and ownership.until_us is not None:
            noticed_us = whole_since(evidence, ownership.until_us, NOTICED_US, HIDING)
            if arrival.at_us > noticed_us + evidence.history.transit_us:
                late_us = arrival.at_us - noticed_us
                yield Finding("sent_from_memory", arrival.job, arrival.due_us, f"{late_us} us")


def _robbed(evidence: Evidence) -> Iterator[Finding]:
    """Nobody is taken over who lives and was not kept from renewing for long."""
    lives = {shard: life for life in evidence.history.lives for shard in life.shards}
    taken: set[tuple[str, int]] = {
        (one.shard, one.until_us)
        for one in evidence.history.ownerships
        if one.ended == "taken_over" and one.until_us is not None
    }
    for shard, until_us in sorted(taken):
        life = lives.get(shard)
        if life is None or (life.until_us is not None and life.until_us <= until_us):
            continue
        faults = evidence.times.faults(until_us - LEASE_US, until_us, HOLDING_UP)
        if not any(
            fault.until_us - fault.from_us >= (TOGETHER_US if fault.shard is None else ALONE_US)
            for fault in faults
            if evidence.concerns(fault, shard)
        ):
            yield Finding("robbed", "", 0, f"{shard} at {until_us}")


def _armed(evidence: Evidence, ownerships: dict[tuple[int, int], Ownership]) -> Iterator[Finding]:
    """Whoever claims a run owns its partition, by the token of the claim and at its instant."""
    for run in (*evidence.history.overwritten, *evidence.history.runs):
        if run.token is None or run.armed_at_us is None:
            continue
        instants_us = evidence.times.instants_us(run.armed_at_us)
        if not any(_is_owned(evidence, run.partition, at_us) for at_us in instants_us):
            yield Finding("armed_after_release", run.job, run.due_us, "while nobody owned it")
        ownership = ownerships.get((run.partition, run.token >> 32))
        if ownership is None or run.shard not in (ownership.shard, None):
            yield Finding("wrong_owner", run.job, run.due_us, f"{run.token >> 32} {run.shard}")
        elif ownership.until_us is not None:
            late_us = min(instants_us) - ownership.until_us
            if late_us > TOLERANCE_US and not _is_restored(evidence, ownership, min(instants_us)):
                yield Finding("armed_after_release", run.job, run.due_us, f"{late_us} us")


def _is_restored(evidence: Evidence, before: Ownership, at_us: int) -> bool:
    """Whether the database had gone back to an ownership by then, and so its fence lets claims of
    it pass. Nothing may be sent because of them."""
    return any(
        one.is_restored
        and one.epoch == before.epoch
        and one.from_us <= at_us <= (one.until_us or at_us) + TOLERANCE_US
        for one in evidence.ownerships_of.get(before.partition, ())
    )


def _is_owned(evidence: Evidence, partition: int, at_us: int) -> bool:
    """Whether a partition had an owner; a takeover and a claim are ordered by the database."""
    return any(
        ownership.from_us <= at_us <= (ownership.until_us or at_us)
        for ownership in evidence.ownerships_of.get(partition, ())
    )
