"""Fire: who has which place. A request in flight takes one in all, with its tenant and its origin.

Invariant: the late lane may fill half of the places that the on-time lane may, rounded up: runs
that come due find one, however long the requests take that catch up.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeAlias
from uuid import UUID

from wheelsched.config import FairnessConfig
from wheelsched.shard.breaker import Breaker
from wheelsched.shard.turns import Item, Line, Share, Turns

# Tenant and origin. Every batch is looked up by it: a UUID is hashed in Python, its integer in C.
Key: TypeAlias = tuple[int, str]


class Tenant(Generic[Item]):
    __slots__ = ("in_flight", "origins", "shares", "tenant_id")

    def __init__(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.shares: tuple[Share[Origin[Item], Item], Share[Origin[Item], Item]]
        self.shares = (Share(tenant_id), Share(tenant_id))
        self.in_flight = 0
        self.origins = 0  # how many are known


class Origin(Generic[Item]):
    """One origin of one tenant."""

    __slots__ = (
        "breaker",
        "held",
        "idle_since_us",
        "in_flight",
        "key",
        "lines",
        "look_at_us",
        "probed",
        "queued",
        "tenant",
    )

    def __init__(self, key: Key, tenant: Tenant[Item]) -> None:
        on_time, late = tenant.shares
        self.key = key
        self.tenant = tenant
        self.lines: tuple[Line[Origin[Item], Item], Line[Origin[Item], Item]]
        self.lines = (Line(self, on_time), Line(self, late))
        self.queued = 0  # runs
        self.held = 0  # runs of jobs that are held back
        self.in_flight = 0
        self.breaker: Breaker | None = None  # none while nothing has failed
        # Jobs whose runs were its probes, the latest last: see `FailingJob`.
        self.probed: OrderedDict[Hashable, None] = OrderedDict()
        self.idle_since_us = 0
        self.look_at_us: int | None = None

    @property
    def is_idle(self) -> bool:
        return not (self.in_flight or self.queued or self.held)


class LaneQueue(Generic[Item]):
    """A lane: its turns, the runs that wait in it, and how many places it may fill."""

    __slots__ = ("in_all", "per_origin", "per_tenant", "queued", "turns", "went")

    def __init__(
        self,
        config: FairnessConfig,
        turns: Turns[Origin[Item], Item],
        went: Callable[[int, int], None],
        *,
        part: int,
    ) -> None:
        self.turns = turns
        self.went = went  # is told how many runs, and when
        self.queued = 0
        self.in_all = -(-config.in_flight // part)
        self.per_tenant = -(-config.in_flight_per_tenant // part)
        self.per_origin = -(-config.in_flight_per_origin // part)
