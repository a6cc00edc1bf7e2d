"""The store in memory, equivalent to the one on Postgres.

Invariant: the contract tests pass on both. No code may rely on what only one of them does.
"""

from collections.abc import Callable

from wheelsched.errors import StoreUnavailable
from wheelsched.ports import (
    Hint,
    HistoryStore,
    IdempotencyStore,
    JobStore,
    LinkStore,
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
from wheelsched.testing.links import MemoryLinks
from wheelsched.testing.plans import MemoryPlans
from wheelsched.testing.runs import MemoryRuns
from wheelsched.testing.server import MemoryServer
from wheelsched.testing.tables import MemoryTables, TablesSnapshot
from wheelsched.testing.tenants import MemoryTenants
from wheelsched.testing.timers import MemoryTimers


class MemoryStore:
    """`Stores` in memory. `now_us` is its clock, in place of the database's."""

    def __init__(self, now_us: Callable[[], int], tables: MemoryTables | None = None) -> None:
        self._now_us = now_us
        self._tables = tables = tables or MemoryTables(now_us)
        self.leases = MemoryLeases(tables)
        self.timers: TimerStore = MemoryTimers(tables)
        self.runs: RunStore = MemoryRuns(tables)
        self.plans: PlanStore = MemoryPlans(tables)
        self.jobs: JobStore = MemoryJobs(tables)
        self.history: HistoryStore = MemoryHistory(tables)
        self.tenants: TenantStore = MemoryTenants(tables)
        self.idempotency: IdempotencyStore = MemoryIdempotency(tables)
        self.links: LinkStore = MemoryLinks(tables)
        self.application = MemoryApplication(tables)

    def for_process(self) -> "MemoryStore":
        """The same tables, as another process reaches them: over its own lease connection."""
        return MemoryStore(self._now_us, self._tables)

    @property
    def server(self) -> MemoryServer:
        """Its lifetime and its backends."""
        return self._tables.server

    def snapshot(self) -> TablesSnapshot:
        """What is committed now, for `go_back`."""
        return self._tables.snapshot()

    def go_back(self, snapshot: TablesSnapshot) -> None:
        """Forgets what was committed since, as a failover to a replica that lagged does.

        Another server has other backends: all lease connections end.
        """
        self._tables.go_back(snapshot)
        self.server.restart()

    async def listen(self, on_hint: Callable[[Hint], None]) -> "MemoryHints":
        """Deliver hints from now on."""
        return MemoryHints(self._tables, on_hint)


class MemoryHints:
    """`HintSource` in memory. A change delivers its hint before it returns."""

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
