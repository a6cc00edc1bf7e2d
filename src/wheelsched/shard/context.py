"""The state that all stages of a shard share for the duration of one lease.

Invariant: each lease has its own context. Nothing in it outlives the lease.
"""

from msgspec import Struct

from wheelsched.clock import DatabaseClock
from wheelsched.config import ShardConfig
from wheelsched.ports import Clock, Stores
from wheelsched.shard.loading.hint_freshness import Changes, Doubts, HintFreshness
from wheelsched.shard.ownership.ownership import ArmingLock, Ownership
from wheelsched.shard.retrying_store import RetryingStore
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.vitals import Vitals


class Context(Struct, frozen=True, eq=False, kw_only=True):
    """The clocks, the stores and the shared state.

    `machine` is the clock that measures trust in the lease. `clock` is the database's clock, which
    decides when runs are due.
    """

    machine: Clock
    clock: DatabaseClock
    stores: Stores  # a single attempt per call
    store: RetryingStore  # retries each call until it succeeds
    ownership: Ownership
    arming_lock: ArmingLock
    registry: RunRegistry
    hint_freshness: HintFreshness
    changes: Changes  # hints about jobs that are being claimed
    doubts: Doubts  # jobs that have changed and were not read since
    vitals: Vitals
    config: ShardConfig
