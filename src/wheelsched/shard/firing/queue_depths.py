"""How many runs of each queue wait for workers, and for how long."""

from collections import Counter
from uuid import UUID

from wheelsched.core.model import QueueTarget
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.ports import Route
from wheelsched.ports.work import Waiting
from wheelsched.shard.runs.armed_run import Batch
from wheelsched.shard.runs.parked import ParkedRuns
from wheelsched.vitals import QueueDepth


class QueueDepths:
    """Counts the runs in the fair queue and those that are parked."""

    def __init__(self, outgoing: FairQueue[Batch], parked: ParkedRuns) -> None:
        self._outgoing = outgoing
        self._parked = parked

    def of_tenant(self, tenant_id: UUID) -> list[Waiting]:
        """The queues of a tenant in which runs wait."""
        return [waiting for (owner, _), waiting in self._count().items() if owner == tenant_id]

    def longest(self, most: int, now_us: int) -> dict[str, QueueDepth]:
        """The longest queues. Those of all tenants with the same name count together."""
        runs, oldest_us = Counter[str](), dict[str, int]()
        for waiting in self._count().values():
            runs[waiting.queue] += waiting.count
            since_us = now_us if waiting.oldest_us is None else waiting.oldest_us
            oldest_us[waiting.queue] = min(oldest_us.get(waiting.queue, now_us), since_us)
        return {
            queue: QueueDepth(runs=count, oldest_age_us=now_us - oldest_us[queue])
            for queue, count in runs.most_common(most)
        }

    def _count(self) -> dict[tuple[UUID, str], Waiting]:
        counted: dict[tuple[UUID, str], Waiting] = {}

        def add(route: Route, count: int, oldest_us: int) -> None:
            assert isinstance(route.target, QueueTarget)
            key = (route.tenant_id, route.target.queue)
            before = counted.get(key)
            if before is not None and before.oldest_us is not None:
                count, oldest_us = count + before.count, min(oldest_us, before.oldest_us)
            counted[key] = Waiting(route.target.queue, count, oldest_us)

        rooms = self._outgoing.rooms
        for room in rooms.known:
            oldest = rooms.oldest(room)
            if oldest is not None:
                add(oldest.route, room.waiting, oldest.fire_at_us)
        for route, parked in self._parked.by_route.items():
            add(route, len(parked), next(iter(parked)).fire_at_us)
        return counted
