"""What workers received: not early, not twice without a reason, not after the end, in order."""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.excuses import (
    TOLERANCE_US,
    declared_dead,
    is_row_lost,
    is_unsettled,
    tolerance_us,
    unwritten_by,
    whole_since,
)
from tests.checker.findings import REVIVABLE, Evidence, Finding, Report
from tests.checker.leases import has_said_failed, lease_end_us
from tests.checker.losses import TRUSTED_US, loss_of_acceptance, losses
from tests.checker.records import FINAL, Arrival, Fault, RunRow
from tests.checker.times import SECOND_US

WITHDRAWN = ("paused", "edited")  # before it was sent; when it is due after all, another is
HEARD_US = 5 * SECOND_US  # by when whoever is to send a run has heard that it was cancelled
DEAFENING = ("crash", "freeze", "store", "deaf", "stall")
SLACK_US = SECOND_US  # a timeout counts from when it was sent, which nobody here has seen


def check(evidence: Evidence, report: Report) -> Iterator[Finding]:
    for (job, due_us), arrivals in evidence.arrivals.items():
        run = evidence.runs.get((job, due_us))
        if run is None and is_row_lost(evidence, job, due_us):
            yield from _order(evidence, arrivals)
            continue
        if run is None or job not in evidence.stories:
            yield Finding("unrecorded", job, due_us, "no row, or nobody has asked for its job")
            continue
        yield from _early(evidence, arrivals)
        yield from _order(evidence, arrivals)
        yield from _after_the_end(evidence, run, arrivals)
        for end, sent in evidence.lives_of(run):
            yield from _twice(evidence, report, sent)
            if sent:
                yield from _too_often(evidence, end, sent)
                yield from _outcome(evidence, end, sent)
    yield from _rewritten(evidence)
    yield from _keys(evidence)
    yield from _tokens(evidence)
    for run in evidence.history.runs:
        if run.state == "succeeded" and (run.job, run.due_us) not in evidence.arrivals:
            yield Finding("phantom", run.job, run.due_us, "succeeded, and nobody received it")


def _early(evidence: Evidence, arrivals: list[Arrival]) -> Iterator[Finding]:
    """Of a run that has begun, a further attempt is due when the one before has failed."""
    for arrival in arrivals:
        if arrival.attempt > arrivals[0].attempt:
            continue
        early_us = evidence.times.instants_us(arrival.due_us)[0] - arrival.at_us
        if early_us > tolerance_us(evidence, arrival.at_us) and not is_unsettled(
            evidence, arrival.at_us
        ):
            yield Finding("early", arrival.job, arrival.due_us, f"by {early_us} us")


def _twice(evidence: Evidence, report: Report, arrivals: list[Arrival]) -> Iterator[Finding]:
    for earlier, later in pairwise(arrivals):
        if later.attempt > earlier.attempt and has_failed(evidence, earlier, later.at_us):
            continue
        if earlier.token == later.token:
            yield Finding("token_reused", later.job, later.due_us, f"{later.token}")
        is_armed_twice = (
            earlier.attempt == later.attempt and earlier.token >> 32 == later.token >> 32
        )
        fault = _cause(evidence, earlier, later)
        if fault is None:
            name = "armed_twice" if is_armed_twice else "duplicated"
            yield Finding(name, later.job, later.due_us, f"{earlier} {later}")
        else:
            report.duplicates[fault.kind] += 1


def _cause(evidence: Evidence, earlier: Arrival, later: Arrival) -> Fault | None:
    """The fault that explains why a run was sent again. An outcome that its worker knows to be
    written is there until the database goes back."""
    fault = unwritten_by(evidence, earlier, later.at_us)
    is_accepted = earlier.accepted_us is not None and earlier.accepted_us <= later.at_us
    if fault is not None and is_accepted and fault.until_us > later.at_us:
        fault = None
    return fault or declared_dead(evidence, later)


def has_failed(evidence: Evidence, arrival: Arrival, at_us: int) -> bool:
    """Whether an attempt had failed by an instant, in a way that another may mend."""
    if arrival.queue:
        return has_said_failed(arrival, at_us) or _is_lease_over(evidence, arrival, at_us)
    definitions = evidence.stories[arrival.job].definitions.values()
    timeout_us = min(one.timeout_us for one in definitions)
    answered_us = arrival.answered_us or at_us
    match arrival.answer:
        case "failed":
            return True
        case "none":
            return answered_us - arrival.at_us >= timeout_us - SLACK_US
        case "ok":
            return answered_us - arrival.at_us >= timeout_us - TOLERANCE_US
        case "accepted" if arrival.reported == "failed" or is_report_lost(evidence, arrival):
            return True
        case "accepted":  # silent for so long, since its answer or later
            return (arrival.reported_us or at_us) - answered_us >= timeout_us - TOLERANCE_US
        case "rejected" | "gone":
            return False


def _is_lease_over(evidence: Evidence, arrival: Arrival, at_us: int) -> bool:
    """Whether a worker that pulls had lost a run by then; not if it knows that it has ended it, and
    the database does, too."""
    is_over = lease_end_us(arrival, at_us) <= at_us + tolerance_us(evidence, at_us) + SLACK_US
    has_ended = arrival.accepted_us is not None and arrival.answer == "ok"
    is_lost = loss_of_acceptance(evidence.history, arrival) is not None
    return is_over and (not has_ended or is_lost)


def is_report_lost(evidence: Evidence, arrival: Arrival) -> bool:
    """Whether the database has forgotten what a worker told it by itself."""
    return arrival.reported_us is not None and any(
        loss.from_us <= arrival.reported_us <= loss.until_us for loss in losses(evidence.history)
    )


def _too_often(evidence: Evidence, end: RunRow, arrivals: list[Arrival]) -> Iterator[Finding]:
    definitions = evidence.stories[end.job].definitions.values()
    most = max((one.max_attempts for one in definitions), default=0)
    attempt = max(arrival.attempt for arrival in arrivals) - end.attempts_before
    if attempt > most:
        yield Finding("tried_too_often", end.job, end.due_us, f"{attempt} of {most}")


def _order(evidence: Evidence, arrivals: list[Arrival]) -> Iterator[Finding]:
    for earlier, later in pairwise(arrivals):
        if later.token < earlier.token and not declared_dead(evidence, later):
            yield Finding("token_order", later.job, later.due_us, "an older token came later")
        if later.key != earlier.key or later.scheduled_us != earlier.scheduled_us:
            yield Finding("key_changed", later.job, later.due_us, f"{earlier.key} {later.key}")


def _after_the_end(evidence: Evidence, run: RunRow, arrivals: list[Arrival]) -> Iterator[Finding]:
    """Nothing is sent after an end, be it in the table or have been there."""
    ends = [run, *evidence.overwritten.get((run.job, run.due_us), ())]
    for end in ends:
        ended_us = evidence.ended_us(end)
        if ended_us is None:
            continue
        for arrival in arrivals:
            if _may_follow(evidence, end, arrival):
                continue
            late_us = arrival.at_us - ended_us - _transit_us(evidence, end, arrival)
            if late_us > tolerance_us(evidence, arrival.at_us) and not is_unsettled(
                evidence, arrival.at_us
            ):
                detail = f"{late_us} us after {end.state}"
                yield Finding("sent_after_end", run.job, run.due_us, detail)


def _transit_us(evidence: Evidence, end: RunRow, arrival: Arrival) -> int:
    """How long an attempt may still have been on its way when its run was cancelled."""
    is_under_way = end.state == "cancelled" and _is_claimed_before(end, arrival)
    return evidence.history.transit_us if is_under_way else 0


def _is_claimed_before(end: RunRow, arrival: Arrival) -> bool:
    return end.token is not None and arrival.token <= end.token


def _may_follow(evidence: Evidence, end: RunRow, arrival: Arrival) -> bool:
    """Whether an end is one after which an attempt may be sent all the same: one that was claimed
    before somebody cancelled it too late, and none that was after."""
    is_over = end is evidence.runs[end.job, end.due_us]
    if end.state == "skipped" and end.skip_reason in WITHDRAWN:
        return not is_over or _is_claim_lost(evidence, end, arrival)  # it gave way
    if end.state in REVIVABLE and not is_over and arrival.token > (end.token or 0):
        return evidence.is_retried(arrival)
    if evidence.is_of_lost_life(arrival) or _is_claim_lost(evidence, end, arrival):
        return True
    if declared_dead(evidence, arrival):
        return True
    return _is_claimed_before(end, arrival) and any(
        request.verb == "cancel"
        and request.due_us == end.due_us
        and not request.in_time
        and arrival.at_us <= whole_since(evidence, request.answered_us, HEARD_US, DEAFENING)
        for request in evidence.stories[end.job].requests
        if end.state == "cancelled" and request.result != "failed"
    )


def _is_claim_lost(evidence: Evidence, end: RunRow, arrival: Arrival) -> bool:
    """Whether an attempt was claimed in a loss, before an outcome of an earlier one was written."""
    return arrival.token > (end.token or 0) and any(
        loss.from_us <= arrival.at_us <= loss.until_us + TRUSTED_US
        for loss in losses(evidence.history)
    )


def _rewritten(evidence: Evidence) -> Iterator[Finding]:
    """An end stays, unless it was no more than a withdrawal, or somebody has retried its run."""
    for run in evidence.history.overwritten:
        is_withdrawn = run.state == "skipped" and run.skip_reason in WITHDRAWN
        is_retried = run.state in REVIVABLE and evidence.retries_of(run.job, run.due_us)
        if run.state in FINAL and not is_withdrawn and not is_retried:
            yield Finding("stale_write", run.job, run.due_us, f"over {run.state}")


def _is_to_come_again(evidence: Evidence, run: RunRow, arrivals: list[Arrival]) -> bool:
    """Whether a run was skipped before its time, by a clock that was set back after it was sent, or
    so shortly before that nobody had noticed."""
    ended_us, sent_us = run.finished_at_us, arrivals[-1].at_us
    if ended_us is None or ended_us >= run.due_us:
        return False
    instant_us = evidence.times.instant_us(ended_us)
    return is_unsettled(evidence, sent_us) or evidence.times.is_stepped(sent_us, instant_us)


def _outcome(evidence: Evidence, run: RunRow, arrivals: list[Arrival]) -> Iterator[Finding]:
    """The outcome in the table is that of the attempt whose token is there."""
    if (
        run.state == "skipped"
        and not _is_to_come_again(evidence, run, arrivals)
        and not all(
            unwritten_by(evidence, arrival, evidence.history.ended_us) for arrival in arrivals
        )
    ):
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
            before_us = heard_us - evidence.times.instant_us(run.finished_at_us)
            if before_us > tolerance_us(evidence, heard_us):
                yield Finding("stale_write", run.job, run.due_us, f"{before_us} us before it ended")


def _tokens(evidence: Evidence) -> Iterator[Finding]:
    """A token belongs to one run of its partition, also after the database went back in time."""
    owners: dict[tuple[int, int], tuple[str, int]] = {}
    for arrival in evidence.history.arrivals:
        partition = evidence.partitions.get(arrival.job)
        if partition is None:
            continue
        owner = owners.setdefault((partition, arrival.token), (arrival.job, arrival.due_us))
        if owner != (arrival.job, arrival.due_us):
            detail = f"{arrival.token}, also of {owner}"
            yield Finding("token_reused", arrival.job, arrival.due_us, detail)


def _keys(evidence: Evidence) -> Iterator[Finding]:
    """A key belongs to one run."""
    owners: dict[str, tuple[str, int]] = {}
    for arrival in evidence.history.arrivals:
        owner = owners.setdefault(arrival.key, (arrival.job, arrival.scheduled_us))
        if owner != (arrival.job, arrival.scheduled_us):
            yield Finding("key_shared", arrival.job, arrival.due_us, arrival.key)
