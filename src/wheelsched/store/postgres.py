"""All stores on Postgres, in one object.

Invariant: they share the connections of one database role, and can do only what that role may do.
"""

from wheelsched.ports import (
    HistoryStore,
    IdempotencyStore,
    JobStore,
    LeaseStore,
    LinkStore,
    PlanStore,
    RunStore,
    TenantStore,
    TimerStore,
)
from wheelsched.store.connections.database import Database
from wheelsched.store.for_api.history import PostgresHistory
from wheelsched.store.for_api.idempotency import PostgresIdempotency
from wheelsched.store.for_api.jobs import PostgresJobs
from wheelsched.store.for_api.tenants import PostgresTenants
from wheelsched.store.for_shard.leases import PostgresLeases
from wheelsched.store.for_shard.plans import PostgresPlans
from wheelsched.store.for_shard.runs import PostgresRuns
from wheelsched.store.for_shard.timers import PostgresTimers
from wheelsched.store.links import PostgresLinks


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
        self.links: LinkStore = PostgresLinks(database)
