"""What every stage of one shard shares, for as long as one lease lasts.

Invariant: a lease has one context, and a context one lease: the next one knows nothing of its runs.
"""

from msgspec import Struct

from wheelsched.clock import DatabaseClock
from wheelsched.config import ShardConfig
from wheelsched.ports import Clock, Stores
from wheelsched.shard.freshness import Changes, Doubts
from wheelsched.shard.gate import Gate
from wheelsched.shard.patience import Patience
from wheelsched.shard.tenure import Tenure
from wheelsched.shard.unfinished import Unfinished
from wheelsched.vitals import Vitals


class Context(Struct, frozen=True, eq=False, kw_only=True):
    """The clocks, the store, and what the shard knows and holds.

    `machine` is the clock by which trust is measured, `clock` the one by which runs are due.
    """

    machine: Clock
    clock: DatabaseClock
    stores: Stores
    tenure: Tenure
    unfinished: Unfinished
    vitals: Vitals
    patience: Patience
    config: ShardConfig
    arming: Gate  # passed while a claim is under way
    changes: Changes  # that were heard of meanwhile
    doubts: Doubts  # about jobs that have changed
