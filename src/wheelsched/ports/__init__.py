"""The ports: the interfaces that wheelsched needs from clocks, stores and transports.

Invariant: a port does not depend on its implementations. After an error, every method of a store
may be called again with the same arguments, and does not repeat a change that the first call made.
The methods of stores work on batches.

A shard uses `LeaseStore`, `TimerStore`, `RunStore` and `PlanStore`. The API uses `JobStore` and
`HistoryStore`, which see one tenant at a time. Operators change `TenantStore`, and both read it. A
`Dispatcher` delivers callbacks.
"""

from wheelsched.core.lease import Backend
from wheelsched.ports.clock import Alarm, Clock
from wheelsched.ports.dispatch import (
    Callback,
    Dispatcher,
    Prepared,
    Room,
    Route,
    RunOwner,
    Sending,
)
from wheelsched.ports.hints import Hint, HintSource
from wheelsched.ports.history import (
    DeadFilter,
    HistoryStore,
    LiveRun,
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
    JobsFound,
    JobsPage,
    JobStore,
    Registration,
    planned,
    position_of,
)
from wheelsched.ports.leases import (
    NO_EPOCHS,
    BackendView,
    Lease,
    LeaseStore,
    OpenBreaker,
    PartitionOwner,
    Renewal,
    ShardView,
    Survey,
)
from wheelsched.ports.links import PUBLISHED_US, LinkedShard, LinkStore, ShardLink
from wheelsched.ports.plans import Plan, Planned, PlanStore, Unplanned, ValidateDraft
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
    "NO_EPOCHS",
    "PUBLISHED_US",
    "UUID_BYTES",
    "Acknowledged",
    "Adoption",
    "Alarm",
    "Backend",
    "BackendView",
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
    "JobsFound",
    "JobsPage",
    "KeptAnswer",
    "KeyedRequest",
    "Lease",
    "LeaseStore",
    "LinkStore",
    "LinkedShard",
    "LiveRun",
    "Mark",
    "OpenBreaker",
    "PartitionOwner",
    "Plan",
    "PlanStore",
    "Planned",
    "Prepared",
    "Registration",
    "Renewal",
    "RequestedRun",
    "Retry",
    "Room",
    "Route",
    "RunFilter",
    "RunOwner",
    "RunStore",
    "RunsFound",
    "Sending",
    "Settled",
    "ShardLink",
    "ShardView",
    "Stores",
    "Survey",
    "Tenant",
    "TenantStore",
    "TimerStore",
    "Token",
    "Unplanned",
    "ValidateDraft",
    "planned",
    "position_of",
]
