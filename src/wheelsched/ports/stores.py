"""All stores together, for wiring a process.

Invariant: all parts see the same rows.
"""

from typing import Protocol

from wheelsched.ports.history import HistoryStore
from wheelsched.ports.idempotency import IdempotencyStore
from wheelsched.ports.jobs import JobStore
from wheelsched.ports.leases import LeaseStore
from wheelsched.ports.links import LinkStore
from wheelsched.ports.plans import PlanStore
from wheelsched.ports.runs import RunStore
from wheelsched.ports.tenants import TenantStore
from wheelsched.ports.timers import TimerStore


class Stores(Protocol):
    """All parts of one store."""

    @property
    def leases(self) -> LeaseStore: ...
    @property
    def timers(self) -> TimerStore: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def plans(self) -> PlanStore: ...
    @property
    def jobs(self) -> JobStore: ...
    @property
    def history(self) -> HistoryStore: ...
    @property
    def tenants(self) -> TenantStore: ...
    @property
    def idempotency(self) -> IdempotencyStore: ...
    @property
    def links(self) -> LinkStore: ...
