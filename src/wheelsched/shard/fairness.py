"""Fire: what waits to be dispatched, and which of it goes next.

Invariant: every batch that was put comes out once. What comes out had a place: in all, with its
tenant, and with its origin of that tenant, whose breaker let it through. Late batches go only when
none on time may.

Places count requests, see `FairnessConfig`; an origin is one of a tenant, so that no tenant stands
in another's way to the same host. The late lane fills half of the places at most: runs that come
due find one, however long the requests take that catch up.

An origin that has become idle is looked at a little later, and forgotten if it was so all the time:
one that is busy now and then is not made anew for each request. One whose breaker has seen failures
is kept for the longest wait that there is.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from wheelsched.config import FairnessConfig
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.core.model import Lane
from wheelsched.ports import Route
from wheelsched.shard.breaker import Breaker, BreakerState
from wheelsched.shard.pace import Pace
from wheelsched.shard.places import Key, LaneQueue, Origin, Tenant
from wheelsched.shard.turns import Turns


class Batch(Protocol):
    """The runs of one request. Its length is their number; nothing of it changes while it waits."""

    @property
    def route(self) -> Route: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def priority(self) -> int: ...
    def __len__(self) -> int: ...


B = TypeVar("B", bound=Batch)

IDLE_US = 5 * SECOND  # before an origin is forgotten


class FairQueue(Generic[B]):
    """What waits to be dispatched. `weight_of` gives the weight of a tenant, from 1."""

    def __init__(self, config: FairnessConfig, weight_of: Callable[[UUID], int]) -> None:
        self._config = config
        self._pace = pace = Pace(config.pace)
        on_time, late = (Turns[Origin[B], B](config.quantum, weight_of) for _ in range(2))
        self._on_time = LaneQueue(config, on_time, pace.count_on_time, part=1)
        self._late = LaneQueue(config, late, pace.spend, part=2)
        self._lanes = (self._on_time, self._late)
        self._origin_edges = frozenset(lane.per_origin for lane in self._lanes)
        self._tenant_edges = frozenset(lane.per_tenant for lane in self._lanes)
        self._longest_wait_us = config.breaker.open_max_ms * MILLISECOND
        self._tenants: dict[UUID, Tenant[B]] = {}
        self._origins: dict[Key, Origin[B]] = {}
        self._sent: dict[int, tuple[B, Origin[B], int]] = {}  # by identity; with its runs
        self._looks: list[tuple[int, int, Origin[B]]] = []  # a heap: when to look at whom
        self._order = count()
        self.runs_in_flight = 0
        self.breaker_transitions = Counter[str]()  # by the state that a breaker went to

    def __len__(self) -> int:
        """The runs that wait."""
        return self._on_time.queued + self._late.queued

    def put(self, batch: B) -> bool:
        """Lets a batch wait; False when too much does already for its origin."""
        runs = len(batch)
        assert runs > 0
        route = batch.route
        origin = self._origins.get((route.tenant_id.int, route.origin))
        if origin is None:
            origin = self._add_origin(route)
        if origin.queued + runs > self._config.max_queued:
            if origin.is_idle and origin.look_at_us is None:
                self._forget(origin)
            return False
        origin.queued += runs
        is_late = batch.lane is Lane.LATE
        lane = self._lanes[is_late]
        lane.queued += runs
        lane.turns.push(origin.lines[is_late], batch, batch.priority)
        return True

    def take(self, now_us: int) -> B | None:
        """The batch that goes now, from here on in flight; None when none may."""
        if self._looks and self._looks[0][0] <= now_us:
            self._look_around(now_us)
        batch = self._take_from(self._on_time, now_us)
        if batch is None and self._pace.ready_us <= now_us:
            batch = self._take_from(self._late, now_us)
        return batch

    def done(self, batch: B, now_us: int, *, failed: bool | None) -> None:
        """Frees the place of a batch in flight, and tells its breaker; None: it was never sent."""
        _, origin, runs = self._sent.pop(id(batch))
        self.runs_in_flight -= runs
        tenant = origin.tenant
        was_edge_of_origin = origin.in_flight in self._origin_edges
        was_edge_of_tenant = tenant.in_flight in self._tenant_edges
        origin.in_flight -= 1
        tenant.in_flight -= 1
        if failed or origin.breaker is not None:
            self._tell_breaker(origin, batch, now_us, failed=failed)
        elif was_edge_of_origin:
            self._open_lines(origin)
        if was_edge_of_tenant:
            self._open_shares(tenant)
        if not origin.in_flight and origin.is_idle:
            origin.idle_since_us = now_us
            if origin.look_at_us is None:
                self._look_later(origin, now_us + IDLE_US)

    def wake_at_us(self) -> int | None:
        """When to `take` again, though nothing is put or done until then."""
        looks_us = self._looks[0][0] if self._looks else None
        if not self._late.turns or len(self._sent) >= self._late.in_all:
            return looks_us
        ready_us = self._pace.ready_us
        return ready_us if looks_us is None else min(ready_us, looks_us)

    @property
    def in_flight(self) -> int:
        """The requests in flight."""
        return len(self._sent)

    def queued(self, lane: Lane) -> int:
        """The runs that wait in a lane."""
        return self._lanes[lane is Lane.LATE].queued

    def breakers(self) -> dict[tuple[UUID, str], BreakerState]:
        """The breakers that have seen failures, by tenant and origin."""
        return {
            (origin.tenant.tenant_id, origin.key[1]): origin.breaker.state
            for origin in self._origins.values()
            if origin.breaker is not None
        }

    def _take_from(self, lane: LaneQueue[B], now_us: int) -> B | None:
        if len(self._sent) >= lane.in_all:
            return None
        taken = lane.turns.take()
        if taken is None:
            return None
        origin, batch, runs = taken
        lane.queued -= runs
        lane.went(runs, now_us)
        self._send(origin, batch, runs)
        return batch

    def _send(self, origin: Origin[B], batch: B, runs: int) -> None:
        tenant = origin.tenant
        origin.queued -= runs
        origin.in_flight += 1
        tenant.in_flight += 1
        self.runs_in_flight += runs
        self._sent[id(batch)] = (batch, origin, runs)
        if origin.breaker is not None:
            origin.breaker.sent(batch)
            self._open_lines(origin)
        elif origin.in_flight in self._origin_edges:
            self._open_lines(origin)
        if tenant.in_flight in self._tenant_edges:
            self._open_shares(tenant)

    def _open_lines(self, origin: Origin[B]) -> None:
        may_send = origin.breaker is None or origin.breaker.may_send
        for lane, line in zip(self._lanes, origin.lines, strict=True):
            is_open = may_send and origin.in_flight < lane.per_origin
            if line.is_open is not is_open:
                lane.turns.open_line(line, is_open=is_open)

    def _open_shares(self, tenant: Tenant[B]) -> None:
        for lane, share in zip(self._lanes, tenant.shares, strict=True):
            is_open = tenant.in_flight < lane.per_tenant
            if share.is_open is not is_open:
                lane.turns.open_share(share, is_open=is_open)

    def _tell_breaker(
        self, origin: Origin[B], batch: B, now_us: int, *, failed: bool | None
    ) -> None:
        if origin.breaker is None:
            origin.breaker = Breaker(self._config.breaker)
        breaker = origin.breaker
        before = breaker.state
        breaker.ended(batch, now_us, failed=failed)
        if breaker.state is not before:
            self.breaker_transitions[breaker.state] += 1
        if breaker.is_fresh:
            origin.breaker = None
        elif breaker.state is BreakerState.OPEN:
            self._look_later(origin, breaker.open_until_us)
        self._open_lines(origin)

    def _look_around(self, now_us: int) -> None:
        while self._looks and self._looks[0][0] <= now_us:
            at_us, _, origin = heappop(self._looks)
            if origin.look_at_us == at_us:
                origin.look_at_us = None
                self._look_at(origin, now_us)

    def _look_at(self, origin: Origin[B], now_us: int) -> None:
        breaker = origin.breaker
        if breaker is not None and breaker.state is BreakerState.OPEN:
            breaker.half_open(now_us)
            self.breaker_transitions[breaker.state] += 1
            self._open_lines(origin)
            self._look_later(origin, now_us + self._longest_wait_us)
        elif origin.is_idle:
            kept_us = IDLE_US if breaker is None else self._longest_wait_us
            if now_us < origin.idle_since_us + kept_us:
                self._look_later(origin, origin.idle_since_us + kept_us)
            else:
                self._forget(origin)

    def _look_later(self, origin: Origin[B], at_us: int) -> None:
        if origin.look_at_us != at_us:
            origin.look_at_us = at_us
            heappush(self._looks, (at_us, next(self._order), origin))

    def _add_origin(self, route: Route) -> Origin[B]:
        tenant = self._tenants.get(route.tenant_id)
        if tenant is None:
            tenant = self._tenants[route.tenant_id] = Tenant(route.tenant_id)
        tenant.origins += 1
        key = (route.tenant_id.int, route.origin)
        origin = self._origins[key] = Origin(key, tenant)
        return origin

    def _forget(self, origin: Origin[B]) -> None:
        del self._origins[origin.key]
        origin.tenant.origins -= 1
        if not origin.tenant.origins:
            del self._tenants[origin.tenant.tenant_id]
