"""Runs of queues: each is handed to one worker at a time, to one that asked, and not forgotten.

An attempt is its worker's for the delivery lease, which is 5 s from the hand-out, and then for as
long as its last heartbeat says. A crash, a lost link or a takeover shortens neither.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.excuses import (
    AROUND,
    BLINDING,
    TOLERANCE_US,
    WRITTEN_US,
    is_unsettled,
    tolerance_us,
    whole_since,
)
from tests.checker.findings import Evidence, Finding
from tests.checker.leases import DELIVERY_LEASE_US, has_said_failed, lease_end_us
from tests.checker.losses import loss_of_acceptance, losses
from tests.checker.records import Arrival, Offer, RunRow
from tests.checker.story import Story
from tests.checker.times import SECOND_US

SLACK_US = 200_000  # of a look that is taken every so often, and of a link
LOOK_US = 3 * SECOND_US  # by when a run is ended that has waited for too long
STARVED_US = 4 * SECOND_US  # by when a credit elsewhere has been recalled
WHOLE_US = 26 * SECOND_US  # how long nothing was broken, for a run to be handed out at once
LOST_US = 10 * SECOND_US  # around which a database that went back knows other heartbeats
HEARD_US = 5 * SECOND_US  # by when a worker on a stream knows that its run was cancelled
FREEING = ("loss", "false_death")  # what ends a lease early: who knew of it is not believed


def check(evidence: Evidence) -> Iterator[Finding]:
    yield from _handfuls(evidence)
    for (job, due_us), arrivals in evidence.hand_outs.items():
        story = evidence.stories.get(job)
        if story is None:
            continue  # others say so
        yield from _unasked(arrivals)
        yield from _early(evidence, arrivals)
        yield from _wasted(evidence, arrivals)
        yield from _unwritten(evidence, arrivals)
        run = evidence.runs.get((job, due_us))
        if run is not None:
            yield from _untold(evidence, run, arrivals)
    offers = _by_queue(evidence)
    for story in evidence.stories.values():
        if any(one.queue for one in story.definitions.values()):
            yield from _waiting(evidence, story, offers)


def _handfuls(evidence: Evidence) -> Iterator[Finding]:
    for handful in evidence.history.handfuls:
        if handful.count > handful.credits:
            detail = f"{handful.worker} asked for {handful.credits} and got {handful.count}"
            yield Finding("overloaded", "", handful.at_us, detail)


def _unasked(arrivals: list[Arrival]) -> Iterator[Finding]:
    for arrival in arrivals:
        if arrival.is_unasked:
            yield Finding("unasked", arrival.job, arrival.due_us, f"{arrival}")


def _early(evidence: Evidence, arrivals: list[Arrival]) -> Iterator[Finding]:
    """Nobody gets a run that another may still have."""
    for earlier, later in pairwise(arrivals):
        if earlier.given_back_us is not None or has_said_failed(earlier, later.at_us):
            continue
        if evidence.is_retried(later):
            continue  # another life
        end_us = lease_end_us(earlier, later.at_us)
        early_us = end_us - later.at_us - tolerance_us(evidence, later.at_us) - SLACK_US
        if early_us <= evidence.history.transit_us or _is_freed(evidence, earlier, later):
            continue
        yield Finding("handed_out_early", later.job, later.due_us, f"{early_us} us: {later}")


def _is_freed(evidence: Evidence, earlier: Arrival, later: Arrival) -> bool:
    """Whether the database, or who owned the run, could not know how long its worker has it."""
    times = evidence.times
    is_stepped = times.is_stepped(earlier.at_us - LOST_US, later.at_us)
    return is_stepped or bool(times.faults(earlier.at_us - LOST_US, later.at_us, FREEING))


def _wasted(evidence: Evidence, arrivals: list[Arrival]) -> Iterator[Finding]:
    """A run that is given back in time is not another attempt, unless somebody could not know."""
    for earlier, later in pairwise(arrivals):
        back_us = earlier.given_back_us
        if back_us is None or back_us - earlier.at_us > DELIVERY_LEASE_US - SLACK_US:
            continue
        is_counted = later.attempt > earlier.attempt
        if is_counted and not evidence.times.faults(earlier.at_us - SECOND_US, later.at_us):
            yield Finding("attempt_wasted", later.job, later.due_us, f"{earlier} {later}")


def _unwritten(evidence: Evidence, arrivals: list[Arrival]) -> Iterator[Finding]:
    """What a worker was told to be written is what the tables say, or have said."""
    for arrival in arrivals:
        if arrival.accepted_us is None or arrival.answer != "ok":
            continue
        key = arrival.job, arrival.due_us
        rows = [evidence.runs.get(key), *evidence.overwritten.get(key, ())]
        # Who ends a run that was cancelled meanwhile is not told so.
        is_there = any(
            row is not None
            and row.state in ("succeeded", "cancelled")
            and row.token == arrival.token
            for row in rows
        )
        is_lost = loss_of_acceptance(evidence.history, arrival) is not None
        if not is_there and not is_lost:
            yield Finding("unwritten", arrival.job, arrival.due_us, f"{arrival}")


def _untold(evidence: Evidence, run: RunRow, arrivals: list[Arrival]) -> Iterator[Finding]:
    """Who has a run that was cancelled is told, at the next heartbeat at the latest."""
    for end in (run, *evidence.overwritten.get((run.job, run.due_us), ())):
        if end.state != "cancelled" or end.finished_at_us is None:
            continue
        ended_us = evidence.times.instant_us(end.finished_at_us)
        written_us = _written_us(evidence, end, ended_us)
        for arrival in arrivals:
            if arrival.received_us is None or arrival.token != end.token:
                continue
            if is_unsettled(evidence, ended_us) or losses(evidence.history):
                continue
            for beat in arrival.beats:
                if beat.is_held and beat.sent_us > written_us:
                    yield Finding("uncancelled", run.job, run.due_us, f"{beat} after {ended_us}")
            if _should_know(evidence, arrival, ended_us):
                yield Finding("uncancelled", run.job, run.due_us, f"since {ended_us}: {arrival}")


def _written_us(evidence: Evidence, end: RunRow, ended_us: int) -> int:
    """By when a cancelled run is so in the tables: at once if a client has asked for it. A shard
    that cancels it for a later run, or with its job, writes that as soon as it can."""
    story = evidence.stories[end.job]
    is_asked = any(
        one.verb == "cancel"
        and one.due_us == end.due_us
        and one.result != "failed"
        and one.sent_us - TOLERANCE_US <= ended_us <= one.answered_us + TOLERANCE_US
        for one in story.requests
    )
    if is_asked:
        return ended_us + TOLERANCE_US
    return whole_since(evidence, ended_us, WRITTEN_US, BLINDING)


def _should_know(evidence: Evidence, arrival: Arrival, ended_us: int) -> bool:
    """Whether the worker of a stream had the run for long after it was cancelled, and all was
    well."""
    until_us = ended_us + HEARD_US
    over_us = min(
        us for us in (arrival.answered_us, arrival.told_us, arrival.left_us, until_us) if us
    )
    has_it = arrival.at_us < ended_us and over_us >= until_us
    return has_it and arrival.is_pushed and not evidence.times.faults(ended_us - WHOLE_US, until_us)


def _by_queue(evidence: Evidence) -> dict[tuple[str, str], list[Offer]]:
    """The offers for each queue of a tenant."""
    offers: dict[tuple[str, str], list[Offer]] = {}
    for offer in evidence.history.offers:
        for queue in offer.queues:
            offers.setdefault((offer.tenant, queue), []).append(offer)
    return offers


def _waiting(
    evidence: Evidence, story: Story, offers: dict[tuple[str, str], list[Offer]]
) -> Iterator[Finding]:
    """No run waits while there is a worker for it, nor for longer than its job allows."""
    definitions = story.definitions.values()
    if any(one.overlap != "allow" for one in definitions):
        return  # it may wait for another
    within_us = max(one.claim_within_us for one in definitions)
    for due_us, window in story.expected().items():
        handed = evidence.hand_outs.get((story.job, due_us))
        run = evidence.runs.get((story.job, due_us))
        if not handed or run is None or evidence.is_retried(handed[0]) or run.attempts_before:
            continue
        jitter_us = window.definition.schedule.jitter_us
        handed_us = handed[0].at_us
        ready_us = evidence.times.instant_us(due_us, handed_us) + jitter_us
        ready_us = max(ready_us, window.known_us + SECOND_US, evidence.history.started_us)
        waited_us = handed_us - ready_us
        faults = evidence.times.faults(ready_us - WHOLE_US, handed_us)
        is_owned = all(fault.kind in AROUND for fault in faults)
        if waited_us > within_us + LOOK_US and is_owned:
            yield Finding("outwaited", story.job, due_us, f"{waited_us} us")
        if waited_us <= STARVED_US or faults:
            continue
        for offer in offers.get((story.tenant, window.definition.queue), ()):
            both_us = min(offer.until_us, handed_us) - max(offer.from_us, ready_us)
            if both_us > STARVED_US:
                yield Finding("starved", story.job, due_us, f"{both_us} us beside {offer}")
                break
