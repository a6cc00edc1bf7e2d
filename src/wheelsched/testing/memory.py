"""The store in memory: the twin of the one on Postgres.

Invariant: the contract tests pass on both. What the twin does not do, none may rely on.
"""

from collections.abc import Callable

from wheelsched.errors import StoreUnavailable
from wheelsched.ports import (
    Hint,
    HistoryStore,
    IdempotencyStore,
    JobStore,
    LeaseStore,
    PlanStore,
    RunStore,
    TenantStore,
    TimerStore,
)
from wheelsched.testing.application import MemoryApplication
from wheelsched.testing.history import MemoryHistory
from wheelsched.testing.idempotency import MemoryIdempotency
from wheelsched.testing.jobs import MemoryJobs
from wheelsched.testing.leases import MemoryLeases
from wheelsched.testing.plans import MemoryPlans
from wheelsched.testing.runs import MemoryRuns
from wheelsched.testing.tables import MemoryTables
from wheelsched.testing.tenants import MemoryTenants
from wheelsched.testing.timers import MemoryTimers


class MemoryStore:
    """`Stores` in memory. `now_us` is its clock, as Postgres has one of its own."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._tables = tables = MemoryTables(now_us)
        self.leases: LeaseStore = MemoryLeases(tables)
        self.timers: TimerStore = MemoryTimers(tables)
        self.runs: RunStore = MemoryRuns(tables)
        self.plans: PlanStore = MemoryPlans(tables)
        self.jobs: JobStore = MemoryJobs(tables)
        self.history: HistoryStore = MemoryHistory(tables)
        self.tenants: TenantStore = MemoryTenants(tables)
        self.idempotency: IdempotencyStore = MemoryIdempotency(tables)
        self.application = MemoryApplication(tables)

    async def listen(self, on_hint: Callable[[Hint], None]) -> "MemoryHints":
        """Delivers hints from now on."""
        return MemoryHints(self._tables, on_hint)


class MemoryHints:
    """`HintSource` in memory: a hint is delivered before the change that it is about returns."""

    def __init__(self, tables: MemoryTables, on_hint: Callable[[Hint], None]) -> None:
        self._tables = tables
        self._on_hint = on_hint
        self._is_open = True
        tables.listeners.append(on_hint)

    async def confirm(self) -> None:
        if not self._is_open:
            raise StoreUnavailable

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._tables.listeners.remove(self._on_hint)
