"""The overlap policy: decides about a run whose job has earlier unfinished runs.

Invariant: firing never gives a job more live runs than its limit, which is one for `skip`. A
requested run or a run of the late lane is never skipped because of an overlap.

A run is *live* from its first dispatch to its final outcome, including the waits between its
attempts. A retry belongs to a live run, so the policy does not decide about it again. An armed or
requested run that is not yet dispatched is unfinished but not live: the policy decides about it.
The shard that owns a job's partition knows all of its runs.

A run is *settling* while its outcome is known and not written yet. It is still live: if its shard
dies, the next owner sends it again. But whether it ends with this outcome is known only once it is
written, so `skip` lets a run wait for that. Otherwise a job whose run was answered while the
database was away would skip everything that it missed meanwhile.

A dead or cancelled run that a person retries or redrives has ended and is no longer live. It waits
in the late lane (`request.retry`), and the policy decides about it as about any other late run.

Only a scheduled run on time may be skipped, or may cancel another. A requested or late run waits
instead. Otherwise `skip` would fire one of a hundred missed runs and skip the rest, and a backfill
under `cancel` would kill on-time work.
"""

from collections.abc import Collection
from itertools import islice
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from wheelsched.core.model import Lane, RunKey, SkipReason, Trigger
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy

# Scheduled runs that wait, per job. A schedule that is faster than its runs would fill the memory.
# Requested and late runs are limited where they are created, and not here.
MAX_QUEUED: Final = 1_000


class Fire(Struct, frozen=True, kw_only=True):
    """Cancel these runs, then dispatch the run."""

    cancel: tuple[RunKey, ...] = ()


class Queue(Struct, frozen=True, kw_only=True):
    """Keep the run armed, and decide again when a live run of the job ends or was settled."""


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
    settling: int = 0,
) -> Decision:
    """Decide about an armed run that is due.

    `lane` is `Run.lane`: a manual retry moves a scheduled run to the late lane. `live` are the live
    runs of its job, oldest dispatch first, and `settling` is how many of them are settling; only
    `skip` needs it. `ahead` is how many runs of the job wait before this one: runs on time come
    before late ones, each ordered by due time.
    """
    must_run = trigger is not Trigger.SCHEDULE or lane is Lane.LATE
    if must_run:
        return Fire() if len(live) + ahead < policy.limit else Queue()
    match policy.policy:
        case OnOverlap.SKIP if len(live) - settling >= policy.limit:
            return Skip(reason=SkipReason.OVERLAP)
        case OnOverlap.SKIP | OnOverlap.QUEUE | OnOverlap.ALLOW:
            if len(live) + ahead < policy.limit:
                return Fire()
            return Queue() if ahead < MAX_QUEUED else Skip(reason=SkipReason.QUEUE_FULL)
        case OnOverlap.CANCEL:
            surplus = max(len(live) - policy.limit + 1, 0)
            return Fire(cancel=tuple(islice(live, surplus)))
        case never:
            assert_never(never)
