"""Runs that wait for a worker without their request, because very many of their queue wait.

Invariant: a parked run is live and claimed, and spends no attempt. It goes back to the fair queue,
in its order, when there is a place: *revalidate* reads it and builds its request again, under the
same token. While runs of a queue are parked, later ones are parked behind them.

A queue without workers fills neither the memory nor `max_armed` this way, and nothing is written.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from wheelsched.config import QueueConfig
from wheelsched.ports import Prepared, Room, Route
from wheelsched.shard.runs.armed_run import OUTDATED, PARKED, ArmedRun, Batch
from wheelsched.shard.runs.phase import Phase

NOTHING: Final = Prepared(
    run_id="",
    idempotency_key="",
    token=0,
    send_at_us=0,
    timeout_us=0,
    secrets=(),
    content=b"",
)


class ParkedRuns:
    """The parked runs of each route, the one that has waited longest first."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._by_route: dict[Route, deque[ArmedRun]] = {}
        self._by_tenant = Counter[UUID]()
        self._count = 0
        # Runs that wait with their requests. Between two counts, those that go are not subtracted.
        self._waiting = Counter[UUID]()  # by tenant
        self._waiting_count = 0
        self._returning: list[ArmedRun] = []  # *revalidate* has them
        self._idle_since_us: dict[Room, int] = {}  # rooms that had credits and have none now

    def __len__(self) -> int:
        return self._count

    @property
    def by_route(self) -> Mapping[Route, Collection[ArmedRun]]:
        return self._by_route

    @property
    def has_credits(self) -> bool:
        """Whether workers wait for runs of a route with parked ones."""
        return any(route.room is not None and route.room.credits for route in self._by_route)

    def credits_changed(self, room: Room, now_us: int) -> None:
        """Notes since when a room has had no credits."""
        if room.credits:
            self._idle_since_us.pop(room, None)
        else:
            self._idle_since_us[room] = now_us

    def forget_idle(self, known: Collection[Room], now_us: int) -> None:
        """Forgets rooms that have had no credits for long: that is the same as never."""
        for room, since_us in tuple(self._idle_since_us.items()):
            if room not in known and now_us - since_us >= self._config.idle_us:
                del self._idle_since_us[room]

    def must_park(self, batch: Batch, now_us: int) -> bool:
        """Whether a batch is parked: earlier ones are, or too many wait, or for too long."""
        room = batch.route.room
        assert room is not None
        if batch.runs[0].claim_by_us:  # it was parked, and comes back
            return False
        if batch.route in self._by_route:
            return True
        if room.credits:
            return False
        is_idle = now_us - self._idle_since_us.get(room, 0) >= self._config.idle_us
        if is_idle and room.waiting + len(batch) > self._config.idle_runs:
            return True
        if self._is_too_much(batch):
            return True
        self._waiting[batch.route.tenant_id] += len(batch)
        self._waiting_count += len(batch)
        return False

    def count_waiting(self, waiting: Counter[UUID]) -> None:
        """Notes how many runs of each tenant wait with their requests."""
        self._waiting = waiting
        self._waiting_count = waiting.total()

    def _is_too_much(self, batch: Batch) -> bool:
        """Whether the memory of the shard has no place for the requests of a batch.

        Their size is compared as if all requests that wait were as large, which needs no sum of
        sizes: large ones are parked sooner, and all together stay within a few times the limit.
        """
        config = self._config
        size = len(batch.runs[0].prepared.content)
        count = self._waiting_count + len(batch)
        return (
            count > config.max_waiting_of_shard
            or count * size > config.max_waiting_bytes
            or self._waiting[batch.route.tenant_id] + len(batch) > config.max_waiting_of_tenant
        )

    def park(self, batch: Batch) -> list[ArmedRun]:
        """Parks runs; returns those for which there is no place."""
        parked = self._by_route.setdefault(batch.route, deque())
        tenant_id = batch.route.tenant_id
        of_tenant, most = self._by_tenant[tenant_id], self._config.max_parked_of_shard
        tenants = len(self._by_tenant) + (tenant_id not in self._by_tenant)
        place = min(
            self._config.max_parked - len(parked),
            self._config.max_parked_of_tenant - of_tenant,
            max(most - self._count, most // tenants - of_tenant),
        )
        place = min(max(place, 0), len(batch))
        self._by_tenant[tenant_id] += place
        self._count += place
        for run in batch.runs[:place]:
            run.enter(Phase.SUSPENDED)
            run.prepared = NOTHING
            run.version = PARKED
            run.claim_by_us = batch.claim_by_us
            parked.append(run)
        self._forget_empty(batch.route)
        return batch.runs[place:]

    def take_expired(self, now_us: int) -> list[ArmedRun]:
        """Removes the runs that have waited too long."""
        expired: list[ArmedRun] = []
        for route, parked in tuple(self._by_route.items()):
            while parked and (parked[0].claim_by_us <= now_us or not _is_parked(parked[0])):
                run = self._pop(route)
                if _is_parked(run):
                    expired.append(run)
            self._forget_empty(route)
        return expired

    def take_next(self) -> list[ArmedRun]:
        """Removes the runs for which their queue has a place again."""
        self._returning = [run for run in self._returning if run.phase is Phase.SUSPENDED]
        returning = Counter([run.route for run in self._returning])
        taken: list[ArmedRun] = []
        for route, parked in tuple(self._by_route.items()):
            assert route.room is not None
            most, waiting = self._config.idle_runs, route.room.waiting + returning[route]
            place = most - waiting if waiting <= most // 2 else 0
            if not route.room.credits:
                place = min(place, self._place_of(route.tenant_id) - len(taken))
            for _ in range(min(place, len(parked))):
                run = self._pop(route)
                if _is_parked(run):
                    run.version = OUTDATED
                    taken.append(run)
            self._forget_empty(route)
        self._returning += taken
        return taken

    def _place_of(self, tenant_id: UUID) -> int:
        """How many more runs of a tenant may wait with their requests."""
        free = min(
            self._config.max_waiting_of_shard - self._waiting_count,
            self._config.max_waiting_of_tenant - self._waiting[tenant_id],
        )
        return free - len(self._returning)

    def _pop(self, route: Route) -> ArmedRun:
        """Removes the run of a route that has waited longest."""
        self._count -= 1
        self._by_tenant[route.tenant_id] -= 1
        return self._by_route[route].popleft()

    def _forget_empty(self, route: Route) -> None:
        if not self._by_route[route]:
            del self._by_route[route]
        if not self._by_tenant[route.tenant_id]:
            del self._by_tenant[route.tenant_id]


def _is_parked(run: ArmedRun) -> bool:
    """False if it was withdrawn."""
    return run.phase is Phase.SUSPENDED and run.version == PARKED
