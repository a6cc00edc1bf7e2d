"""The tables of the store in memory.

Invariant: no method of a part awaits between reading and writing, so that each is a transaction.
"""

from collections import Counter
from collections.abc import Callable
from itertools import count
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.audit import Entry
from wheelsched.core.duration import MINUTE, SECOND
from wheelsched.core.model import Attempt, Draft, Job, JobState, Run, RunKey, RunState, SkipReason
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import FenceRaised, LeaseLost
from wheelsched.ports import Hint, KeptAnswer, Lease, OpenBreaker, Tenant, Token

# What is due within a second may have been sent by the time that the shard hears of a change.
IN_TIME_US = SECOND
# What is due later than this is loaded by then without a hint.
HINTED_US = 10 * MINUTE


class ShardRow(Struct):
    fence: int
    renewals: int
    expires_at_us: int
    started_at_us: int
    address: str | None
    is_leaving: bool = False
    breakers: list[OpenBreaker] = []


class PartitionRow(Struct):
    owner: UUID | None = None
    epoch: int = 0
    live_since_us: int = -(1 << 62)
    marked_by: int = 0
    released_epoch: int = 0


class TimerRow(Struct):
    version: int
    due_us: int | None  # None: the schedule has ended


class RunRow(Struct):
    run: Run
    had_retry: bool = False
    heartbeat_at_us: int | None = None
    request_id: UUID | None = None


class IdempotencyRow(Struct):
    digest: bytes
    begun_at_us: int
    tried_at_us: int
    answer: KeptAnswer | None = None


class UnplannedRow(Struct, frozen=True):
    job_id: UUID
    tenant_id: UUID
    written_at_us: int
    is_counted: bool = False


class AuditRow(Struct, frozen=True):
    tenant_id: UUID
    actor: str
    entry: Entry


class MemoryTables:
    """Everything that the parts share. `now_us` is the clock of the "database"."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.tenants: dict[UUID, Tenant] = {}
        self.tokens: dict[bytes, Token] = {}
        self.audit: list[AuditRow] = []
        self.idempotency: dict[tuple[UUID, str], IdempotencyRow] = {}
        self.jobs: dict[UUID, Job] = {}
        self.drafts: dict[UUID, Draft] = {}  # a job is here or there
        self.locked: set[UUID] = set()  # jobs that a transaction is about to remove
        self.unplanned: dict[int, UnplannedRow] = {}
        self.unplanned_numbers = count(1)
        self.job_counts: Counter[UUID] = Counter()
        self.names: dict[tuple[UUID, str], UUID] = {}  # of those that are not finished
        self.timers: dict[UUID, TimerRow] = {}
        self.runs: dict[RunKey, RunRow] = {}
        self.payloads: dict[RunKey, Raw] = {}
        self.attempts: dict[tuple[RunKey, int], Attempt] = {}
        self.stale: set[tuple[RunKey, int]] = set()
        self.retries: dict[RunKey, int | None] = {}
        self.shards: dict[UUID, ShardRow] = {}
        self.partitions = [PartitionRow() for _ in range(PARTITIONS)]
        self.listeners: list[Callable[[Hint], None]] = []

    def check_lease(self, lease: Lease) -> None:
        """The fence: raises when the lease is gone, or names an old one."""
        row = self.shards.get(lease.shard_id)
        if row is None:
            raise LeaseLost
        if row.fence != lease.fence:
            raise FenceRaised

    def holds(self, lease: Lease) -> bool:
        """The fence, for what is only left undone without it."""
        row = self.shards.get(lease.shard_id)
        return row is not None and row.fence == lease.fence

    def owns(self, lease: Lease, job_id: UUID) -> bool:
        """Whether the partition of a job is the shard's."""
        return self.partitions[partition_of(job_id)].owner == lease.shard_id

    def end_shard(self, shard_id: UUID) -> None:
        """Deletes a lease and frees its partitions."""
        self.shards.pop(shard_id, None)
        for partition, row in enumerate(self.partitions):
            if row.owner == shard_id:
                self.free(partition)

    def free(self, partition: int) -> None:
        """Makes a partition nobody's, and tells every listener."""
        self.partitions[partition].owner = None
        self._tell(Hint(partition))

    def hint(self, job_id: UUID, *, is_unplanned: bool = False) -> None:
        """Tells every listener that a job has changed."""
        self._tell(Hint(partition_of(job_id), job_id, is_unplanned))

    def note(self, tenant_id: UUID, actor: str, entry: Entry) -> None:
        """Writes a line of the audit."""
        self.audit.append(AuditRow(tenant_id, actor, entry))

    def occupy(self, job: Job | Draft) -> None:
        """Takes the name of a job, and its place in the quota; a finished one needs neither."""
        if job.state is not JobState.FINISHED:
            self.names[job.tenant_id, job.name] = job.job_id
            self.job_counts[job.tenant_id] += isinstance(job, Job)

    def release(self, job: Job | Draft) -> None:
        """Gives back what `occupy` took."""
        if job.state is not JobState.FINISHED:
            del self.names[job.tenant_id, job.name]
            self.job_counts[job.tenant_id] -= isinstance(job, Job)

    def write_run(self, run: Run) -> bool:
        """Adds a run, unless its key is taken, and keeps the mark of its partition."""
        known = self.runs.get(run.key)
        if known is not None and not (run.state is RunState.ARMED and is_withdrawn(known.run)):
            return False
        self.runs[run.key] = RunRow(run)
        partition = self.partitions[partition_of(run.job_id)]
        if run.state is RunState.ARMED:
            partition.live_since_us = min(partition.live_since_us, run.due_us)
        return True

    def _tell(self, hint: Hint) -> None:
        for listener in tuple(self.listeners):
            listener(hint)


def is_withdrawn(run: Run) -> bool:
    """Whether a pause or an edit came before the run was sent: it gives way to another."""
    is_taken_back = run.skip_reason in (SkipReason.PAUSED, SkipReason.EDITED)
    return run.state is RunState.SKIPPED and is_taken_back and run.armed_at_us is not None
