"""Limits how many requests are in flight: in total, per tenant, and per origin of a tenant.

Invariant: the late lane may use half of each limit, rounded up. However long late requests take, a
run that comes due finds the other half free. An origin whose room has no credits is closed, so that
its runs use up no limit.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeAlias
from uuid import UUID

from wheelsched.config import FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.batch import B
from wheelsched.fairness.breaker import Breaker
from wheelsched.fairness.round_robin import Item, OriginQueue, RoundRobin, TenantQueue
from wheelsched.ports import Room, Route

# Tenant and origin. Every batch is looked up by it: a UUID is hashed in Python, its integer in C.
Key: TypeAlias = tuple[int, str]


class Tenant(Generic[Item]):
    __slots__ = ("in_flight", "origins", "queues", "tenant_id")

    def __init__(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.queues: tuple[TenantQueue[Origin[Item], Item], TenantQueue[Origin[Item], Item]]
        self.queues = (TenantQueue(tenant_id), TenantQueue(tenant_id))  # by lane
        self.in_flight = 0
        self.origins = 0  # how many are known


class Origin(Generic[Item]):
    """One origin of one tenant."""

    __slots__ = (
        "breaker",
        "check_at_us",
        "held",
        "idle_since_us",
        "in_flight",
        "key",
        "probed",
        "queued",
        "queues",
        "room",
        "tenant",
    )

    def __init__(self, key: Key, tenant: Tenant[Item], room: Room | None = None) -> None:
        on_time, late = tenant.queues
        self.key = key
        self.tenant = tenant
        self.queues: tuple[OriginQueue[Origin[Item], Item], OriginQueue[Origin[Item], Item]]
        self.queues = (OriginQueue(self, on_time, room), OriginQueue(self, late, room))  # by lane
        self.room = room
        self.queued = 0  # runs
        self.held = 0  # runs of jobs that are held back
        self.in_flight = 0
        self.breaker: Breaker | None = None  # None while nothing has failed
        # Jobs whose runs have probed this origin, the latest last: see `FailingJob`.
        self.probed: OrderedDict[Hashable, None] = OrderedDict()
        self.idle_since_us = 0
        self.check_at_us: int | None = None

    @property
    def is_idle(self) -> bool:
        return not (self.in_flight or self.queued or self.held)


class LaneQueue(Generic[Item]):
    """A lane: its ring, the number of runs queued in it, and its limits."""

    __slots__ = ("count_taken", "in_all", "per_origin", "per_tenant", "queued", "round_robin")

    def __init__(
        self,
        config: FairnessConfig,
        round_robin: RoundRobin[Origin[Item], Item],
        count_taken: Callable[[int, int], None],
        *,
        part: int,
    ) -> None:
        self.round_robin = round_robin
        self.count_taken = count_taken  # called with the number of runs and the time
        self.queued = 0
        self.in_all = -(-config.in_flight // part)
        self.per_tenant = -(-config.in_flight_per_tenant // part)
        self.per_origin = -(-config.in_flight_per_origin // part)


class Limits(Generic[B]):
    """The known tenants and origins, and which of their queues are below their limits."""

    def __init__(self, on_time: LaneQueue[B], late: LaneQueue[B]) -> None:
        self.lanes = (on_time, late)
        self.origin_edges = frozenset(lane.per_origin for lane in self.lanes)
        self.tenant_edges = frozenset(lane.per_tenant for lane in self.lanes)
        self.tenants: dict[UUID, Tenant[B]] = {}
        self.origins: dict[Key, Origin[B]] = {}
        self.by_room: dict[Room, list[Origin[B]]] = {}

    def find(self, route: Route) -> Origin[B] | None:
        return self.origins.get((route.tenant_id.int, route.origin))

    def add(self, route: Route) -> Origin[B]:
        """Adds the origin of a route, and its tenant if that is new."""
        tenant = self.tenants.get(route.tenant_id)
        if tenant is None:
            tenant = self.tenants[route.tenant_id] = Tenant(route.tenant_id)
        tenant.origins += 1
        key = (route.tenant_id.int, route.origin)
        origin = self.origins[key] = Origin(key, tenant, route.room)
        if route.room is not None:
            self.by_room.setdefault(route.room, []).append(origin)
            self.update_origin(origin)
        return origin

    def remove(self, origin: Origin[B]) -> None:
        """Removes an origin, and its tenant if this was its last one."""
        del self.origins[origin.key]
        if origin.room is not None:
            of_room = self.by_room[origin.room]
            of_room.remove(origin)
            if not of_room:
                del self.by_room[origin.room]
        origin.tenant.origins -= 1
        if not origin.tenant.origins:
            del self.tenants[origin.tenant.tenant_id]

    def enqueue(self, origin: Origin[B], batch: B, *, is_front: bool = False) -> None:
        """Queues a batch behind those of its origin, lane and priority, or before them."""
        is_late = batch.lane is Lane.LATE
        origin.queued += len(batch)
        self.lanes[is_late].round_robin.push(
            origin.queues[is_late], batch, batch.priority, is_front=is_front
        )

    def update_origin(self, origin: Origin[B]) -> None:
        """Opens or closes the queues of an origin, by its limit, its breaker and its room."""
        may_send = origin.breaker is None or origin.breaker.may_send
        room = origin.room
        if room is not None and (room.is_held or not room.credits):
            may_send = False
        for lane, queue in zip(self.lanes, origin.queues, strict=True):
            is_open = may_send and origin.in_flight < lane.per_origin
            if queue.is_open is not is_open:
                lane.round_robin.open_origin(queue, is_open=is_open)

    def update_tenant(self, tenant: Tenant[B]) -> None:
        """Opens or closes the queues of a tenant, by its limit."""
        for lane, queue in zip(self.lanes, tenant.queues, strict=True):
            is_open = tenant.in_flight < lane.per_tenant
            if queue.is_open is not is_open:
                lane.round_robin.open_tenant(queue, is_open=is_open)
