"""What workers received: not early, not twice without a reason, not after the end, in order."""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.findings import Evidence, Finding, Report
from tests.checker.records import Arrival, RunRow
from tests.checker.times import SECOND_US

TOLERANCE_US = 15_000  # of the clock, and of a round trip
UNSETTLED_US = 30 * SECOND_US  # after a step of the clock nobody can be held to the microsecond
EXPLAINS_US = 15 * SECOND_US  # how long after a fault a duplicate may have been caused by it
DRAIN_US = 29 * SECOND_US  # a shard that leaves finishes what it has sent, within bounds


def check(evidence: Evidence, report: Report) -> Iterator[Finding]:
    for (job, due_us), arrivals in evidence.arrivals.items():
        run = evidence.runs.get((job, due_us))
        if run is None:
            yield Finding("unrecorded", job, due_us, "no row")
            continue
        yield from _early(evidence, arrivals)
        yield from _twice(evidence, report, arrivals)
        yield from _order(arrivals)
        yield from _after_the_end(evidence, run, arrivals)
        yield from _outcome(evidence, run, arrivals)
    yield from _keys(evidence)
    for run in evidence.history.runs:
        if run.state == "succeeded" and (run.job, run.due_us) not in evidence.arrivals:
            yield Finding("phantom", run.job, run.due_us, "succeeded, and nobody received it")


def tolerance_us(evidence: Evidence, at_us: int) -> int:
    """How exact a shard's clock has to be: as exact as it says that it is."""
    return TOLERANCE_US + evidence.times.error_us(at_us)


def is_unsettled(evidence: Evidence, at_us: int, for_us: int = 0) -> bool:
    """Whether the clock is moved about then, or a fault kept a shard from noticing."""
    if evidence.times.is_steady:
        return False
    since_us = at_us - UNSETTLED_US
    for fault in evidence.times.faults(since_us, at_us, ("store", "freeze")):
        since_us = min(since_us, fault.from_us - UNSETTLED_US)
    return evidence.times.is_stepped(since_us, at_us + for_us + UNSETTLED_US)


def _early(evidence: Evidence, arrivals: list[Arrival]) -> Iterator[Finding]:
    for arrival in arrivals:
        early_us = arrival.due_us - evidence.times.database_us(arrival.at_us)
        if early_us > tolerance_us(evidence, arrival.at_us) and not is_unsettled(
            evidence, arrival.at_us
        ):
            yield Finding("early", arrival.job, arrival.due_us, f"by {early_us} us")


def _twice(evidence: Evidence, report: Report, arrivals: list[Arrival]) -> Iterator[Finding]:
    for earlier, later in pairwise(arrivals):
        if later.attempt > earlier.attempt and _has_failed(evidence, earlier, later):
            continue
        if earlier.token == later.token:
            yield Finding("token_reused", later.job, later.due_us, f"{later.token}")
        is_armed_twice = (
            earlier.attempt == later.attempt and earlier.token >> 32 == later.token >> 32
        )
        explained = _explained(evidence, earlier, later.at_us)
        if explained is None:
            name = "armed_twice" if is_armed_twice else "duplicated"
            yield Finding(name, later.job, later.due_us, f"{earlier} {later}")
        else:
            report.duplicates[explained] += 1


def _explained(evidence: Evidence, earlier: Arrival, until_us: int) -> str | None:
    """The fault that may have made a run arrive twice: of everybody, or of who had sent it."""
    tenure = evidence.tenure_of(earlier)
    for fault in evidence.times.faults(earlier.at_us - EXPLAINS_US, until_us):
        if tenure is not None and not evidence.concerns(fault, tenure.shard):
            continue
        if fault.kind in ("crash", "freeze", "store"):
            return fault.kind
        if fault.kind == "leave" and fault.until_us - fault.from_us >= DRAIN_US:
            return fault.kind
    return None


def _has_failed(evidence: Evidence, arrival: Arrival, later: Arrival) -> bool:
    """Whether another attempt was called for."""
    story = evidence.stories[arrival.job]
    timeout_us = min(one.timeout_us for one in story.definitions.values())
    took_us = (arrival.answered_us or later.at_us) - arrival.at_us
    match arrival.answer:
        case "failed":
            return True
        case "none":  # counted from when it was sent, which nobody here has seen
            return took_us >= timeout_us - SECOND_US
        case "ok":
            return took_us >= timeout_us - TOLERANCE_US
        case "accepted":
            heard_us = arrival.reported_us or later.at_us
            return arrival.reported != "ok" or heard_us - arrival.at_us >= timeout_us
        case "rejected" | "gone":
            return False


def _order(arrivals: list[Arrival]) -> Iterator[Finding]:
    for earlier, later in pairwise(arrivals):
        if later.token < earlier.token:
            yield Finding("token_order", later.job, later.due_us, "an older token came later")
        if later.key != earlier.key or later.scheduled_us != earlier.scheduled_us:
            yield Finding("key_changed", later.job, later.due_us, f"{earlier.key} {later.key}")


def _after_the_end(evidence: Evidence, run: RunRow, arrivals: list[Arrival]) -> Iterator[Finding]:
    if run.finished_at_us is None or run.state == "cancelled":
        return
    for arrival in arrivals:
        late_us = evidence.times.database_us(arrival.at_us) - run.finished_at_us
        if late_us > tolerance_us(evidence, arrival.at_us) and not is_unsettled(
            evidence, arrival.at_us
        ):
            yield Finding("sent_after_end", run.job, run.due_us, f"{late_us} us after {run.state}")


def _outcome(evidence: Evidence, run: RunRow, arrivals: list[Arrival]) -> Iterator[Finding]:
    """The outcome in the table is that of the attempt whose token is there."""
    last = arrivals[-1]
    until_us = (last.answered_us or last.at_us) + EXPLAINS_US
    if run.state == "skipped" and not _explained(evidence, arrivals[0], until_us):
        yield Finding("skipped_and_sent", run.job, run.due_us, f"{run.skip_reason}")
    if run.state not in ("succeeded", "dead"):
        return
    latest = [arrival for arrival in arrivals if arrival.token == run.token]
    said = {arrival.reported or arrival.answer for arrival in latest}
    if run.state == "succeeded" and "ok" not in said:
        yield Finding("stale_write", run.job, run.due_us, f"succeeded, but its worker said {said}")
    if run.state != "succeeded" or run.finished_at_us is None:
        return
    for arrival in latest:
        heard_us = arrival.reported_us or arrival.answered_us
        if heard_us is not None and not is_unsettled(evidence, heard_us):
            before_us = evidence.times.database_us(heard_us) - run.finished_at_us
            if before_us > tolerance_us(evidence, heard_us):
                yield Finding("stale_write", run.job, run.due_us, f"{before_us} us before it ended")


def _keys(evidence: Evidence) -> Iterator[Finding]:
    """A key belongs to one run, and a run to one tenant and its own worker."""
    owners: dict[str, tuple[str, int]] = {}
    for arrival in evidence.history.arrivals:
        story = evidence.stories.get(arrival.job)
        run = evidence.runs.get((arrival.job, arrival.due_us))
        urls = {one.url for one in story.definitions.values()} if story else set()
        tenants = {arrival.tenant, story.tenant if story else None, run.tenant if run else None}
        if arrival.url not in urls or len(tenants) > 1:
            yield Finding("cross_tenant", arrival.job, arrival.due_us, f"{arrival.url} {tenants}")
        owner = owners.setdefault(arrival.key, (arrival.job, arrival.scheduled_us))
        if owner != (arrival.job, arrival.scheduled_us):
            yield Finding("key_shared", arrival.job, arrival.due_us, arrival.key)
