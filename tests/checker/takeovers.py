"""Liveness 1: how long the jobs of a killed shard wait for their next fire.

Counted from the kill, or from when there was somebody to take over. Not counted where the world was
not able to: while the store was away, a shard frozen, or the clock of the database moved. When
another shard is killed meanwhile, what was to be its share waits from then on.
"""

from collections.abc import Iterator

from tests.checker.excuses import is_unsettled
from tests.checker.findings import Evidence, Finding, Report
from tests.checker.lateness import is_hindered
from tests.checker.records import Arrival, Life, Ownership
from tests.checker.story import Story
from tests.checker.times import SECOND_US

AT_MOST_US = 15 * SECOND_US
KNOWN_US = 1_500_000  # of one whose connections were closed
SEEN_US = 2 * SECOND_US  # who has been there for so long has seen the others
BEFORE_US = 5 * SECOND_US  # whoever was frozen or cut off till then may have to begin again
LEASE_US = 7 * SECOND_US  # how long a killed shard may count as one that lives
DISABLING = ("freeze", "store", "clock", "stall")


def check(evidence: Evidence, report: Report) -> Iterator[Finding]:
    for life in evidence.history.lives:
        if life.is_killed and life.until_us is not None:
            held = _held(evidence, life, life.until_us)
            for arrival in _next_fires(evidence, held, life.until_us):
                ownership = held[evidence.partitions[arrival.job]]
                yield from _judge(evidence, report, arrival, ownership, life.until_us)


def _held(evidence: Evidence, life: Life, killed_us: int) -> dict[int, Ownership]:
    """What a process owned when it was killed, by partition."""
    return {
        ownership.partition: ownership
        for ownership in evidence.history.ownerships
        if ownership.shard in life.shards
        and ownership.from_us <= killed_us
        and (ownership.until_us is None or ownership.until_us > killed_us)
    }


def _judge(
    evidence: Evidence, report: Report, arrival: Arrival, ownership: Ownership, killed_us: int
) -> Iterator[Finding]:
    able_us = _able_since(evidence, killed_us, arrival.at_us)
    if able_us is None:
        return
    due_us = _due(evidence, arrival)
    others = _other_kills(evidence, killed_us, arrival.at_us)
    is_known = not others and _is_known(evidence, ownership.shard, arrival.at_us)
    at_most_us = KNOWN_US if is_known else AT_MOST_US
    took_us = arrival.at_us - max(able_us, due_us, *others, killed_us)
    if took_us > at_most_us:
        yield Finding("slow_takeover", arrival.job, arrival.due_us, f"{took_us} us")
    has_waited = ownership.until_us is None or due_us <= ownership.until_us
    if has_waited and not others:
        report.takeovers_us.append(arrival.at_us - able_us)


def _is_known(evidence: Evidence, shard: str, fired_us: int) -> bool:
    """Whether somebody who was there before and after could see that a shard was killed."""
    dead = next((life for life in evidence.history.lives if shard in life.shards), None)
    if dead is None or not dead.is_known or dead.until_us is None:
        return False
    seen_us = dead.until_us - SEEN_US
    if dead.from_us > seen_us or evidence.times.faults(seen_us, fired_us, ("disconnect",)):
        return False
    return any(
        life.from_us <= seen_us and _is_able(life, fired_us) for life in evidence.history.lives
    )


def _other_kills(evidence: Evidence, killed_us: int, fired_us: int) -> list[int]:
    """The kills of others shortly before or meanwhile: what falls to one of them waits again."""
    return [
        life.until_us
        for life in evidence.history.lives
        if life.is_killed
        and life.until_us is not None
        and life.until_us != killed_us
        and killed_us - LEASE_US < life.until_us <= fired_us
    ]


def _next_fires(evidence: Evidence, held: dict[int, Ownership], killed_us: int) -> list[Arrival]:
    """The first arrival of each of its jobs under a later owner, where no worker was in the way."""
    found: dict[str, Arrival] = {}
    for arrival in sorted(evidence.history.arrivals, key=lambda arrival: arrival.at_us):
        ownership = held.get(evidence.partitions.get(arrival.job, -1))
        if (
            ownership is not None
            and arrival.at_us > killed_us
            and arrival.token >> 32 > ownership.epoch
            and not evidence.is_retried(arrival)
        ):
            found.setdefault(arrival.job, arrival)
    return [
        arrival
        for job, arrival in found.items()
        if (story := evidence.stories.get(job)) is not None
        and _was_there(story, killed_us)
        and not is_hindered(evidence, story)
    ]


def _was_there(story: Story, at_us: int) -> bool:
    """Whether a job was registered by then: what a transaction commits later nobody could fire."""
    return all(one.answered_us <= at_us for one in story.requests if one.verb == "create")


def _able_since(evidence: Evidence, killed_us: int, fired_us: int) -> int | None:
    """From when on somebody could have taken over and fired; None when something was in the way."""
    times = evidence.times
    if times.faults(killed_us - BEFORE_US, fired_us, DISABLING) or is_unsettled(evidence, fired_us):
        return None
    takers = [
        life.from_us
        for life in evidence.history.lives
        if life.from_us <= fired_us and _is_able(life, fired_us)
    ]
    return max(killed_us, min(takers)) if takers else None


def _is_able(life: Life, at_us: int) -> bool:
    """Whether a process was neither killed nor asked to leave by then."""
    return life.able_until_us is None or life.able_until_us > at_us


def _due(evidence: Evidence, arrival: Arrival) -> int:
    """The latest instant at which the run may have been meant to fire."""
    definitions = evidence.stories[arrival.job].definitions.values()
    jitter_us = max(one.schedule.jitter_us for one in definitions)
    return evidence.times.instant_us(arrival.due_us, arrival.at_us) + jitter_us
