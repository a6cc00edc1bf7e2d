"""The main types of wheelsched: job, run and attempt.

Invariant: a run is one (job, due time), by primary key. Its id, its idempotency key and its
position in the history follow from that key alone.

**Requested runs.** Manual and backfill runs use the same key (job_id, due_us) as scheduled runs.
Two rules keep them apart without another column in the key:

- The due times of a schedule are whole milliseconds. A requested run is due at the moment of the
  request, moved to an instant that is *not* a whole millisecond (`requested_due_us`). So a request
  can never take the key of a scheduled run.
- A backfill run is due at the moment of the request, and `backfill_of_us` is the due time that it
  replaces. `scheduled_us`, which goes to the worker and into the idempotency key, is that due time.
  So backfilling the same due time twice, or one that already ran, takes effect once. A backfill of
  old due times appears in today's history, even if retention has dropped the old rows.

A requested run begins in state `retrying` with attempt 0: it waits for its first attempt like a
failed run for its next. The shard that owns the partition arms it, so the API never writes what
only a lease holder may write.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Raw, Struct, convert

from wheelsched.core.outcome import Outcome
from wheelsched.core.policies.policy import (
    DEFAULT_TIMEOUT_US,
    MisfirePolicy,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.errors import InvalidRunId
from wheelsched.schedule.spec import END_US, Spec
from wheelsched.values.duration import HOUR, MILLISECOND

DEFAULT_IDEMPOTENCY_KEY: Final = "{{job_id}}:{{scheduled_at_unix}}"
DEFAULT_CLAIM_WITHIN_US: Final = HOUR


class JobState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    UNPLANNED = "unplanned"  # written in a user's transaction; no shard has checked it yet
    REFUSED = "refused"  # a shard checked it and found it invalid


DRAFT_STATES: Final = frozenset({JobState.UNPLANNED, JobState.REFUSED})


class HttpTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A URL that is called for each run."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    batch: int = 1

    @property
    def name(self) -> str:
        return self.url


class QueueTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A queue of the tenant, from which workers take the runs."""

    queue: str
    claim_within_us: int = DEFAULT_CLAIM_WITHIN_US  # a run that no worker takes by then is dead

    @property
    def name(self) -> str:
        return f"queue {self.queue}"


Target: TypeAlias = HttpTarget | QueueTarget


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """The stored definition."""

    job_id: UUID
    tenant_id: UUID
    name: str
    schedule: Raw  # the user's JSON, a string or an object; the API returns it unchanged
    spec: Spec  # the parsed schedule, with time zone, DST rules and jitter
    anchor_us: int  # start of an `every` without a start: when the schedule was registered
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
    version: int = 1  # incremented by every edit; the ETag
    created_at_us: int
    updated_at_us: int
    paused_at_us: int | None = None


class Draft(Struct, frozen=True, kw_only=True):
    """A job that no shard has accepted yet: its document, not parsed."""

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
    """What a circuit breaker stops."""

    ORIGIN = "origin"  # all runs of one tenant for an origin
    JOB = "job"
    TARGET = "target"  # a target that receives runs of many jobs in one request


class Trigger(StrEnum):
    """What created a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"


class Lane(StrEnum):
    """The queue of a run for dispatch. Late runs never overtake runs on time."""

    ON_TIME = "on_time"
    LATE = "late"  # misfires, backfills, and runs that a person retries or redrives


class SkipReason(StrEnum):
    """Why a due time has no attempt."""

    PAST_WINDOW = "past_window"  # older than the misfire window
    MISFIRE_SKIP = "misfire_skip"  # past its grace, and the policy is `skip`
    SUPERSEDED = "superseded"  # past its grace, and a later one fires in its place
    MAX_MISSED = "max_missed"  # past its grace, and `max_missed` later ones fire
    OVERLAP = "overlap"  # an earlier run was unfinished
    QUEUE_FULL = "queue_full"  # too many runs of the job were waiting
    PAUSED = "paused"  # the job was paused before the run was dispatched
    EDITED = "edited"  # the job got another schedule before the run was dispatched
    DELETED = "deleted"  # the job was deleted before the run was dispatched


class RunKey(NamedTuple):
    """The identity of a run, and the primary key of its row."""

    job_id: UUID
    due_us: int


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """One due time of one job. A skipped run may stand for several due times."""

    job_id: UUID
    due_us: int
    tenant_id: UUID
    state: RunState
    trigger: Trigger = Trigger.SCHEDULE
    lane: Lane = Lane.ON_TIME  # stored, so that the next owner of the partition keeps it
    backfill_of_us: int | None = None
    attempt: int = 0  # attempts made; 0 until the first is dispatched
    attempts_before: int = 0  # attempts before the last manual retry, which no longer count
    retry_at_us: int | None = None  # when the next attempt is due, until its outcome is known
    armed_at_us: int | None = None
    started_at_us: int | None = None  # of the first attempt
    finished_at_us: int | None = None
    lateness_us: int | None = None  # of the first attempt
    http_status: int | None = None
    error: str | None = None
    skip_reason: SkipReason | None = None
    missed_count: int | None = None  # how many due times a skipped run stands for
    missed_since_us: int | None = None  # the first of those due times; `due_us` is the last
    shard: UUID | None = None
    token: int | None = None  # of the latest attempt
    payload: Raw | None = None  # of this run only; loaded only to build its request

    @property
    def key(self) -> RunKey:
        return RunKey(self.job_id, self.due_us)

    @property
    def run_id(self) -> str:
        return format_run_id(self.key)

    @property
    def counted_attempt(self) -> int:
        """The number of the latest attempt with an outcome, as `max_attempts` counts it."""
        return self.attempt - self.attempts_before

    @property
    def attempt_in_hand(self) -> int:
        """The number of the attempt in flight. An armed attempt is not in `attempt` yet."""
        return self.counted_attempt + (self.state is RunState.ARMED)

    @property
    def has_begun(self) -> bool:
        """Whether an attempt had an outcome since the last request; then overlap was decided."""
        return self.counted_attempt > 0

    @property
    def scheduled_us(self) -> int:
        """The due time that the run stands for, which differs from `due_us` for a backfill."""
        return self.due_us if self.backfill_of_us is None else self.backfill_of_us


class Attempt(Struct, frozen=True, kw_only=True):
    """One dispatch of a run."""

    job_id: UUID
    due_us: int
    attempt: int  # from 1
    token: int
    shard: UUID
    started_at_us: int | None  # None: it was never sent, or the time is unknown
    finished_at_us: int | None = None
    outcome: Outcome | None = None  # None: sent, no response yet


_RUN_ID: Final = re.compile(r"([0-9a-f]{32})-(0|[1-9][0-9]{0,18})")


def format_run_id(key: RunKey) -> str:
    """`<job id in hex>-<due time in µs>`. It encodes the key, so a lookup needs no other index."""
    return f"{key.job_id.hex}-{key.due_us}"


def parse_run_id(run_id: str) -> RunKey:
    """Parse a run id into its key. Each key has exactly one id."""
    matched = _RUN_ID.fullmatch(run_id)
    if matched is None:
        raise InvalidRunId
    job_id, due = matched.groups()
    due_us = int(due)
    # No run is due later, so larger numbers never reach a bigint or a datetime.
    if due_us >= END_US:
        raise InvalidRunId
    return RunKey(convert(job_id, UUID), due_us)  # faster than `UUID` itself


def requested_due_us(now_us: int, index: int = 0) -> int:
    """The due time of the `index`-th run of a request at `now_us`.

    It is the `index`-th instant from now on that is not a whole millisecond. If two requests
    collide in one microsecond, the second one moves past the instants of the first.
    """
    per_millisecond = MILLISECOND - 1
    millisecond, microsecond = divmod(now_us, MILLISECOND)
    position = millisecond * per_millisecond + max(microsecond - 1, 0) + index
    millisecond, microsecond = divmod(position, per_millisecond)
    return millisecond * MILLISECOND + microsecond + 1
