"""The tables of the store in memory.

Invariant: no method of a part awaits between reading and writing, so that each is a transaction.
"""

from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from wheelsched.core.duration import MINUTE, SECOND
from wheelsched.core.model import Attempt, Job, Run, RunKey, RunState
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import FenceRaised, LeaseLost
from wheelsched.ports import Hint, Lease

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


class PartitionRow(Struct):
    owner: UUID | None = None
    epoch: int = 0
    live_since_us: int = -(1 << 62)


class TimerRow(Struct):
    version: int
    due_us: int | None  # None: the schedule has ended


class RunRow(Struct):
    run: Run
    had_retry: bool = False
    heartbeat_at_us: int | None = None


class MemoryTables:
    """Everything that the parts share. `now_us` is the clock of the "database"."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.jobs: dict[UUID, Job] = {}
        self.names: dict[tuple[UUID, str], UUID] = {}
        self.timers: dict[UUID, TimerRow] = {}
        self.runs: dict[RunKey, RunRow] = {}
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

    def end_shard(self, shard_id: UUID) -> None:
        """Deletes a lease and frees its partitions."""
        self.shards.pop(shard_id, None)
        for row in self.partitions:
            if row.owner == shard_id:
                row.owner = None

    def hint(self, job_id: UUID) -> None:
        """Tells every listener that a job has changed."""
        for listener in tuple(self.listeners):
            listener(Hint(partition_of(job_id), job_id))

    def write_run(self, run: Run) -> bool:
        """Adds a run, unless its key is taken, and keeps the mark of its partition."""
        if run.key in self.runs:
            return False
        self.runs[run.key] = RunRow(run)
        partition = self.partitions[partition_of(run.job_id)]
        if run.state is RunState.ARMED:
            partition.live_since_us = min(partition.live_since_us, run.due_us)
        return True
