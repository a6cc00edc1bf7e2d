"""The store in memory: the twin of the one on Postgres.

Invariant: the contract tests pass on both. What the twin does not do, none may rely on.
"""

from collections.abc import Callable

from wheelsched.ports import HistoryStore, JobStore, LeaseStore, RunStore, TimerStore
from wheelsched.testing.history import MemoryHistory
from wheelsched.testing.jobs import MemoryJobs
from wheelsched.testing.leases import MemoryLeases
from wheelsched.testing.runs import MemoryRuns
from wheelsched.testing.tables import MemoryTables
from wheelsched.testing.timers import MemoryTimers


class MemoryStore:
    """`Stores` in memory. `now_us` is its clock, as Postgres has one of its own."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        tables = MemoryTables(now_us)
        self.leases: LeaseStore = MemoryLeases(tables)
        self.timers: TimerStore = MemoryTimers(tables)
        self.runs: RunStore = MemoryRuns(tables)
        self.jobs: JobStore = MemoryJobs(tables)
        self.history: HistoryStore = MemoryHistory(tables)
