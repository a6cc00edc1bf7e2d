"""Ports: what wheelsched asks of the world, and nothing of how it is done.

Invariant: a port names what is needed and never who provides it; it imports no adapter. Every
method of a store may be sent again with the same arguments after an error, and then changes
nothing that the first sending changed. Methods of stores take and give whole batches.

The stores of a shard are `LeaseStore`, `TimerStore`, `RunStore` and `PlanStore`; those of the API
are `JobStore` and `HistoryStore`, which see one tenant at a time. `TenantStore` is the operators',
and both read it. A `Dispatcher` carries callbacks.
"""

from wheelsched.ports.clock import Alarm, Clock
from wheelsched.ports.dispatch import Callback, Dispatcher, Prepared, Route
from wheelsched.ports.hints import Hint, HintSource
from wheelsched.ports.history import (
    DeadFilter,
    HistoryStore,
    RequestedRun,
    RunFilter,
    RunsFound,
)
from wheelsched.ports.idempotency import IdempotencyStore, KeptAnswer, KeyedRequest
from wheelsched.ports.jobs import (
    FIRST_JOB,
    Acknowledged,
    Deleted,
    JobFilter,
    JobPosition,
    JobStore,
    JobVersion,
    Known,
    Registration,
    planned,
    position_of,
)
from wheelsched.ports.leases import (
    Lease,
    LeaseStore,
    OpenBreaker,
    Ownership,
    ShardView,
    Survey,
)
from wheelsched.ports.plans import Judge, Plan, Planned, PlanStore, Unplanned
from wheelsched.ports.runs import Adoption, Checked, Ending, RunStore, Settled
from wheelsched.ports.stores import Stores
from wheelsched.ports.tenants import Caller, Tenant, TenantStore, Token
from wheelsched.ports.timers import (
    NEVER_US,
    UUID_BYTES,
    Claim,
    ClaimedRetry,
    ClaimedRun,
    Horizon,
    Mark,
    Retry,
    TimerStore,
)

__all__ = [
    "FIRST_JOB",
    "NEVER_US",
    "UUID_BYTES",
    "Acknowledged",
    "Adoption",
    "Alarm",
    "Callback",
    "Caller",
    "Checked",
    "Claim",
    "ClaimedRetry",
    "ClaimedRun",
    "Clock",
    "DeadFilter",
    "Deleted",
    "Dispatcher",
    "Ending",
    "Hint",
    "HintSource",
    "HistoryStore",
    "Horizon",
    "IdempotencyStore",
    "JobFilter",
    "JobPosition",
    "JobStore",
    "JobVersion",
    "Judge",
    "KeptAnswer",
    "KeyedRequest",
    "Known",
    "Lease",
    "LeaseStore",
    "Mark",
    "OpenBreaker",
    "Ownership",
    "Plan",
    "PlanStore",
    "Planned",
    "Prepared",
    "Registration",
    "RequestedRun",
    "Retry",
    "Route",
    "RunFilter",
    "RunStore",
    "RunsFound",
    "Settled",
    "ShardView",
    "Stores",
    "Survey",
    "Tenant",
    "TenantStore",
    "TimerStore",
    "Token",
    "Unplanned",
    "planned",
    "position_of",
]
