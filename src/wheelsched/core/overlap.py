"""Overlap: what fire does with a run that finds earlier runs of its job unfinished.

Invariant: firing never leaves a job with more live runs than its limit, which is one for
`skip`; and a run that was asked for, or is caught up late, is never skipped for an overlap.

A run is *live* from its first dispatch to its final outcome, the waits between its attempts
included: a retry belongs to a live run and is never decided about again. One that is armed, or
was requested, and is not yet dispatched is unfinished but not live: it is what this decides
about. The shard that owns a job's partition knows all of them.

A dead or cancelled run that a person retries or redrives has ended and is live no more. It waits
in the late lane (`request.retry`), and this decides about it as about any other there.

Only a scheduled run on time may be skipped, or may cancel another. One that a person requested,
or that the late lane brings, waits instead: catching up a hundred missed runs under `skip` would
otherwise fire one and skip the rest, and a backfill under `cancel` would kill on-time work.
"""

from collections.abc import Collection
from itertools import islice
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from wheelsched.core.model import Lane, RunKey, SkipReason, Trigger
from wheelsched.core.policy import OnOverlap, OverlapPolicy

# A schedule that is faster than its runs would fill the memory. What is asked for, or caught up,
# is bounded where it is asked for, and has no bound here.
MAX_QUEUED: Final = 1_000


class Fire(Struct, frozen=True, kw_only=True):
    """Dispatch the run, after cancelling these."""

    cancel: tuple[RunKey, ...] = ()


class Queue(Struct, frozen=True, kw_only=True):
    """Keep the run armed, and decide again when a live run of the job ends."""


class Skip(Struct, frozen=True, kw_only=True):
    """Record the run as skipped."""

    reason: SkipReason


Decision: TypeAlias = Fire | Queue | Skip


def decide(
    policy: OverlapPolicy,
    *,
    trigger: Trigger,
    lane: Lane,
    live: Collection[RunKey],
    ahead: int,
) -> Decision:
    """Decide about an armed run whose time has come.

    `lane` is the run's own, `Run.lane`: a retry by a person has moved a scheduled run to the late
    one. `live` are the live runs of its job, oldest dispatch first. `ahead` is how many runs of the
    job wait in front of this one: those on time before those of the late lane, each by due time.
    """
    must_run = trigger is not Trigger.SCHEDULE or lane is Lane.LATE
    if must_run:
        return Fire() if len(live) + ahead < policy.limit else Queue()
    match policy.policy:
        case OnOverlap.SKIP:
            return Fire() if len(live) < policy.limit else Skip(reason=SkipReason.OVERLAP)
        case OnOverlap.QUEUE | OnOverlap.ALLOW:
            if len(live) + ahead < policy.limit:
                return Fire()
            return Queue() if ahead < MAX_QUEUED else Skip(reason=SkipReason.QUEUE_FULL)
        case OnOverlap.CANCEL:
            surplus = max(len(live) - policy.limit + 1, 0)
            return Fire(cancel=tuple(islice(live, surplus)))
        case never:
            assert_never(never)
