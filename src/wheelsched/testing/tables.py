"""The tables of the in-memory store.

Invariant: no store method awaits between reading and writing, so each one is a transaction.
"""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.audit import Entry
from wheelsched.core.model import Attempt, Draft, Job, JobState, Run, RunKey, RunState, SkipReason
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import DatabaseWentBack, FenceRaised, LeaseLost
from wheelsched.ports import Backend, Hint, KeptAnswer, Lease, OpenBreaker, ShardLink, Tenant, Token
from wheelsched.testing.server import MemoryServer
from wheelsched.values.duration import MINUTE, SECOND

# A run that is due within a second may be sent before its shard knows of a change.
IN_TIME_US = SECOND
# A job that is due later than this is loaded in time without a hint.
HINTED_US = 10 * MINUTE


class ShardRow(Struct):
    fence: int
    renewals: int
    expires_at_us: int
    started_at_us: int
    address: str | None
    is_leaving: bool = False
    breakers: list[OpenBreaker] = []
    backend: Backend | None = None
    connection: int = 0  # the number of the lease connection behind `backend`
    went_back_at_us: int | None = None
    link: ShardLink | None = None


class ProcessRow(Struct):
    key: bytes
    seen_at_us: int


class PartitionRow(Struct):
    owner: UUID | None = None
    epoch: int = 0
    live_since_us: int = -(1 << 62)
    marked_by: int = 0
    released_epoch: int = 0
    released_at_us: int | None = None


class TimerRow(Struct):
    version: int
    due_us: int | None  # None: the schedule has ended


class RunRow(Struct):
    run: Run
    had_retry: bool = False
    heartbeat_at_us: int | None = None
    lease_us: int | None = None  # of that heartbeat
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


TablesSnapshot = dict[str, Any]


class MemoryTables:
    """The tables that all stores share. `now_us` is the clock of the "database"."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.server = MemoryServer(now_us)
        self.tenants: dict[UUID, Tenant] = {}
        self.tokens: dict[bytes, Token] = {}
        self.audit: list[AuditRow] = []
        self.idempotency: dict[tuple[UUID, str], IdempotencyRow] = {}
        self.jobs: dict[UUID, Job] = {}
        self.drafts: dict[UUID, Draft] = {}  # a job is either here or in `jobs`
        self.locked: set[UUID] = set()  # jobs that a transaction is about to remove
        self.unplanned: dict[int, UnplannedRow] = {}
        self.unplanned_numbers = count(1)
        self.job_counts: Counter[UUID] = Counter()
        self.names: dict[tuple[UUID, str], UUID] = {}  # of unfinished jobs
        self.timers: dict[UUID, TimerRow] = {}
        self.runs: dict[RunKey, RunRow] = {}
        self.payloads: dict[RunKey, Raw] = {}
        self.attempts: dict[tuple[RunKey, int], Attempt] = {}
        self.stale: set[tuple[RunKey, int]] = set()
        self.retries: dict[RunKey, int | None] = {}
        self.shards: dict[UUID, ShardRow] = {}
        self.processes: dict[UUID, ProcessRow] = {}
        self.partitions = [PartitionRow() for _ in range(PARTITIONS)]
        self.listeners: list[Callable[[Hint], None]] = []

    def snapshot(self) -> TablesSnapshot:
        """A copy of all rows."""
        return {name: deepcopy(vars(self)[name]) for name in self._table_names()}

    def go_back(self, snapshot: TablesSnapshot) -> None:
        """Replaces all rows. The tables stay the same objects: others hold them."""
        for name in self._table_names():
            table, before = vars(self)[name], deepcopy(snapshot[name])
            table.clear()
            if isinstance(table, list):
                table.extend(before)
            else:
                for row in before:  # one by one: a test may watch the rows of a table
                    if isinstance(table, set):
                        table.add(row)
                    else:
                        table[row] = before[row]

    def _table_names(self) -> list[str]:
        tables = (
            name for name, table in vars(self).items() if isinstance(table, dict | list | set)
        )
        return [name for name in tables if name != "listeners"]

    def check_lease(self, lease: Lease) -> None:
        """The fence: raises if the lease is gone or its fence is old."""
        row = self.shards.get(lease.shard_id)
        if row is None:
            raise LeaseLost
        if row.fence < lease.fence:
            raise DatabaseWentBack
        if row.fence > lease.fence:
            raise FenceRaised

    def holds(self, lease: Lease) -> bool:
        """The fence as a question, for methods that do nothing without it."""
        row = self.shards.get(lease.shard_id)
        return row is not None and row.fence == lease.fence

    def owns(self, lease: Lease, job_id: UUID) -> bool:
        """Whether the shard owns the partition of a job."""
        return self.partitions[partition_of(job_id)].owner == lease.shard_id

    def end_shard(self, shard_id: UUID) -> None:
        """Delete a lease and free its partitions."""
        self.shards.pop(shard_id, None)
        for partition, row in enumerate(self.partitions):
            if row.owner == shard_id:
                self.free(partition)

    def free(self, partition: int) -> None:
        """Free a partition and notify all listeners."""
        self.partitions[partition].owner = None
        self._notify(Hint(partition))

    def hint(self, job_id: UUID, *, is_unplanned: bool = False) -> None:
        """Notify all listeners that a job has changed."""
        self._notify(Hint(partition_of(job_id), job_id, is_unplanned))

    def note(self, tenant_id: UUID, actor: str, entry: Entry) -> None:
        """Write an audit entry."""
        self.audit.append(AuditRow(tenant_id, actor, entry))

    def occupy(self, job: Job | Draft) -> None:
        """Reserve the name of a job and its quota. A finished job needs neither."""
        if job.state is not JobState.FINISHED:
            self.names[job.tenant_id, job.name] = job.job_id
            self.job_counts[job.tenant_id] += isinstance(job, Job)

    def release(self, job: Job | Draft) -> None:
        """Release what `occupy` reserved."""
        if job.state is not JobState.FINISHED:
            del self.names[job.tenant_id, job.name]
            self.job_counts[job.tenant_id] -= isinstance(job, Job)

    def write_run(self, run: Run) -> bool:
        """Insert a run, unless its key is taken, and update the mark of its partition."""
        known = self.runs.get(run.key)
        if known is not None and not (run.state is RunState.ARMED and is_withdrawn(known.run)):
            return False
        self.runs[run.key] = RunRow(run)
        partition = self.partitions[partition_of(run.job_id)]
        if run.state is RunState.ARMED:
            partition.live_since_us = min(partition.live_since_us, run.due_us)
        return True

    def _notify(self, hint: Hint) -> None:
        for listener in tuple(self.listeners):
            listener(hint)


def is_withdrawn(run: Run) -> bool:
    """Whether a pause or an edit withdrew the run before it was sent, so it may be replaced."""
    is_taken_back = run.skip_reason in (SkipReason.PAUSED, SkipReason.EDITED)
    return run.state is RunState.SKIPPED and is_taken_back and run.armed_at_us is not None
