"""The nouns of wheelsched: job, run, attempt.

Invariant: a run is one (job, due time), by primary key, and everything that names it (its id,
its idempotency key, its place in the history) follows from that key alone.

**Requested runs.** Manual and backfill runs live under the same key (job_id, due_us) beside the
scheduled ones. Two rules keep them apart without another column in the key:

- Due times of a schedule are whole milliseconds. A requested run is due at the moment it is
  asked for, moved to an instant that is *not* a whole millisecond (`requested_due_us`). So a
  request can never take the key of a scheduled run, and a trigger uses up nothing.
- A backfill run is due when it is asked for and remembers in `backfill_of_us` which due time it
  stands for. `scheduled_us`, which the worker sees and the idempotency key is made of, is that
  time: filling a hole twice, or filling one that is none, has the effect once. Old holes are
  filled in today's history, whatever the retention has dropped.

A requested run begins in state `retrying` with attempt 0: it waits for its first attempt as a
failed one waits for its next. The shard that owns the partition arms it, so that the API never
writes what only a lease holder may write.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.duration import MILLISECOND
from wheelsched.core.outcome import Outcome
from wheelsched.core.policy import (
    DEFAULT_TIMEOUT_US,
    MisfirePolicy,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.core.spec import END_US, Spec
from wheelsched.errors import InvalidRunId

DEFAULT_IDEMPOTENCY_KEY: Final = "{{job_id}}:{{scheduled_at_unix}}"


class JobState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    UNPLANNED = "unplanned"  # written in a transaction of its user's; no shard has judged it yet
    REFUSED = "refused"  # one has, and it cannot be what was meant


DRAFT_STATES: Final = frozenset({JobState.UNPLANNED, JobState.REFUSED})


class Target(Struct, frozen=True, kw_only=True, gc=False):
    """Where the callbacks of a job go."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    batch: int = 1


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """The stored definition."""

    job_id: UUID
    tenant_id: UUID
    name: str
    schedule: Raw  # the JSON as written, a string or an object: what the user gets back
    spec: Spec  # what it means, with time zone, DST rules and jitter
    anchor_us: int  # where an `every` without a start begins: when the schedule was written
    target: Target
    payload: Raw = Raw(b"null")  # sent byte for byte
    misfire: MisfirePolicy = MisfirePolicy()
    overlap: OverlapPolicy = OverlapPolicy()
    retry: RetryPolicy = RetryPolicy()
    timeout_us: int = DEFAULT_TIMEOUT_US
    priority: int = 0
    idempotency_key: str = DEFAULT_IDEMPOTENCY_KEY
    tags: dict[str, str] = {}
    state: JobState = JobState.ACTIVE
    version: int = 1  # grows with every edit; the ETag
    created_at_us: int
    updated_at_us: int
    paused_at_us: int | None = None


class Draft(Struct, frozen=True, kw_only=True):
    """A job that nobody has accepted: what was written, and nothing of what it means."""

    job_id: UUID
    tenant_id: UUID
    name: str
    document: Raw  # the JSON object
    state: JobState = JobState.UNPLANNED
    version: int = 1
    created_at_us: int
    updated_at_us: int
    error: str | None = None  # why it was refused


class RunState(StrEnum):
    ARMED = "armed"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


FINAL_STATES: Final = frozenset(
    {RunState.SUCCEEDED, RunState.DEAD, RunState.SKIPPED, RunState.CANCELLED}
)
UNFINISHED_STATES: Final = frozenset(RunState) - FINAL_STATES


class BreakerKind(StrEnum):
    """What a circuit breaker holds back."""

    ORIGIN = "origin"  # everything that one tenant has for it
    JOB = "job"
    TARGET = "target"  # that takes runs of many jobs in one request


class Trigger(StrEnum):
    """Who asked for a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"


class Lane(StrEnum):
    """Where a run queues for dispatch. The late lane never overtakes the other."""

    ON_TIME = "on_time"
    LATE = "late"  # misfires that are caught up, backfills, and what a person retries or redrives


class SkipReason(StrEnum):
    """Why a due time has no attempt."""

    PAST_WINDOW = "past_window"  # older than the misfire window
    MISFIRE_SKIP = "misfire_skip"  # past its grace, and the policy is to skip
    SUPERSEDED = "superseded"  # past its grace, and a later one fires for it
    MAX_MISSED = "max_missed"  # past its grace, and too many later ones fire
    OVERLAP = "overlap"  # an earlier run was unfinished
    QUEUE_FULL = "queue_full"  # too many runs of the job were waiting
    PAUSED = "paused"  # the job was paused while the run was armed, or before, or when it came due
    EDITED = "edited"  # the job got another schedule while the run was armed, or before
    DELETED = "deleted"  # the job was deleted while the run was armed, or before


class RunKey(NamedTuple):
    """The identity of a run, and the primary key of its row."""

    job_id: UUID
    due_us: int


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """One due time of one job, or, when skipped, a summary of several."""

    job_id: UUID
    due_us: int
    tenant_id: UUID
    state: RunState
    trigger: Trigger = Trigger.SCHEDULE
    lane: Lane = Lane.ON_TIME  # stored, so that the next owner of the partition keeps to it
    backfill_of_us: int | None = None
    attempt: int = 0  # attempts made; 0 until the first is dispatched
    attempts_before: int = 0  # made before a person last asked to retry: they count no more
    retry_at_us: int | None = None  # when the next attempt is due, until it has come back
    armed_at_us: int | None = None
    started_at_us: int | None = None  # of the first attempt
    finished_at_us: int | None = None
    lateness_us: int | None = None  # of the first attempt
    http_status: int | None = None
    error: str | None = None
    skip_reason: SkipReason | None = None
    missed_count: int | None = None  # how many due times a skipped row stands for
    missed_since_us: int | None = None  # the first of them; `due_us` is the last
    shard: UUID | None = None
    token: int | None = None  # of the latest attempt
    payload: Raw | None = None  # of its own; read only where its request is made

    @property
    def key(self) -> RunKey:
        return RunKey(self.job_id, self.due_us)

    @property
    def run_id(self) -> str:
        return format_run_id(self.key)

    @property
    def counted_attempt(self) -> int:
        """The number of the latest attempt that came back, as `max_attempts` counts it."""
        return self.attempt - self.attempts_before

    @property
    def attempt_in_hand(self) -> int:
        """The number of the attempt whose outcome comes next: an armed one is not counted yet."""
        return self.counted_attempt + (self.state is RunState.ARMED)

    @property
    def has_begun(self) -> bool:
        """Whether an attempt has come back since it was last asked for: `overlap` is over it."""
        return self.counted_attempt > 0

    @property
    def scheduled_us(self) -> int:
        """The due time the run is for; for a backfill not the time it was asked for."""
        return self.due_us if self.backfill_of_us is None else self.backfill_of_us


class Attempt(Struct, frozen=True, kw_only=True):
    """One dispatch of a run."""

    job_id: UUID
    due_us: int
    attempt: int  # from 1
    token: int
    shard: UUID
    started_at_us: int | None  # None: it never reached a socket, or nobody knows when
    finished_at_us: int | None = None
    outcome: Outcome | None = None  # None: sent, and no answer yet


_RUN_ID: Final = re.compile(r"([0-9a-f]{32})-(0|[1-9][0-9]{0,18})")


def format_run_id(key: RunKey) -> str:
    """`<job id in hex>-<due time in µs>`: the key itself, so that no index is needed to find it."""
    return f"{key.job_id.hex}-{key.due_us}"


def parse_run_id(run_id: str) -> RunKey:
    """The key that a run id spells; each key has one spelling."""
    matched = _RUN_ID.fullmatch(run_id)
    # No run is due later: neither a bigint nor a datetime has to hold what nobody can ask for.
    if matched is None or int(matched[2]) >= END_US:
        raise InvalidRunId
    return RunKey(UUID(hex=matched[1]), int(matched[2]))


def requested_due_us(now_us: int, index: int = 0) -> int:
    """The due time of the run that is requested at `now_us`, the `index`-th of one request.

    It is the `index`-th instant from now on that is not a whole millisecond. Should two requests
    meet in one microsecond, the second moves to instants behind those of the first.
    """
    per_millisecond = MILLISECOND - 1
    millisecond, microsecond = divmod(now_us, MILLISECOND)
    position = millisecond * per_millisecond + max(microsecond - 1, 0) + index
    millisecond, microsecond = divmod(position, per_millisecond)
    return millisecond * MILLISECOND + microsecond + 1
