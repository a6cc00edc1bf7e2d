"""The parts of the store on Postgres, together.

Invariant: they share the connections of one role; what that role may not do, no part can.
"""

from wheelsched.ports import (
    HistoryStore,
    IdempotencyStore,
    JobStore,
    LeaseStore,
    PlanStore,
    RunStore,
    TenantStore,
    TimerStore,
)
from wheelsched.store.database import Database
from wheelsched.store.history import PostgresHistory
from wheelsched.store.idempotency import PostgresIdempotency
from wheelsched.store.jobs import PostgresJobs
from wheelsched.store.leases import PostgresLeases
from wheelsched.store.plans import PostgresPlans
from wheelsched.store.runs import PostgresRuns
from wheelsched.store.tenants import PostgresTenants
from wheelsched.store.timers import PostgresTimers


class PostgresStore:
    """`Stores` on Postgres."""

    def __init__(self, database: Database) -> None:
        self.leases: LeaseStore = PostgresLeases(database)
        self.timers: TimerStore = PostgresTimers(database)
        self.runs: RunStore = PostgresRuns(database)
        self.plans: PlanStore = PostgresPlans(database)
        self.jobs: JobStore = PostgresJobs(database)
        self.history: HistoryStore = PostgresHistory(database)
        self.tenants: TenantStore = PostgresTenants(database)
        self.idempotency: IdempotencyStore = PostgresIdempotency(database)
