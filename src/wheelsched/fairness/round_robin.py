"""Picks the next item of one lane: deficit round robin between tenants, priorities within one.

Invariant: an origin's queue is listed with its tenant exactly while it is open and not empty, under
its highest priority. A tenant is in the ring exactly while it is open and has a listed queue. So
the next item is found without a look at anything that may not go.

The tenant at the head of the ring goes on while its deficit counter covers the cost of the next
item, which is the item's length. Then it gets one quantum per unit of weight and moves to the end
of the ring. What is left over counts in the next turn, but a tenant with nothing queued starts
afresh: it cannot save up turns while it is idle. The origins of one tenant with the same priority
take turns, one item each.
"""

from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sized
from typing import Generic, TypeVar
from uuid import UUID

from wheelsched.ports import Room

OriginT = TypeVar("OriginT")
Item = TypeVar("Item", bound=Sized)


class TenantQueue(Generic[OriginT, Item]):
    """The queued items of one tenant in one lane."""

    __slots__ = ("deficit", "is_open", "listed", "priorities", "tenant_id", "waiting")

    def __init__(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.is_open = True
        self.deficit = 0
        self.waiting = 0  # origins with something queued, listed or not
        self.listed: dict[int, OrderedDict[OriginQueue[OriginT, Item], None]] = {}  # by priority
        self.priorities: list[int] = []  # of `listed`, the highest last


class OriginQueue(Generic[OriginT, Item]):
    """The queued items of one origin in one lane: by priority, then first come first served."""

    __slots__ = (
        "by_priority",
        "is_open",
        "listed_at",
        "origin",
        "priorities",
        "room",
        "tenant_queue",
    )

    def __init__(
        self,
        origin: OriginT,
        tenant_queue: TenantQueue[OriginT, Item],
        room: Room | None = None,
    ) -> None:
        self.origin = origin
        self.room = room
        self.tenant_queue = tenant_queue
        self.is_open = True
        self.listed_at: int | None = None
        self.by_priority: dict[int, deque[Item]] = {}  # none of them is empty
        self.priorities: list[int] = []  # of `by_priority`, the highest last


class RoundRobin(Generic[OriginT, Item]):
    """The ring of one lane."""

    def __init__(self, quantum: int, weight_of: Callable[[UUID], int]) -> None:
        self._quantum = quantum
        self._weight_of = weight_of
        self._ring: OrderedDict[TenantQueue[OriginT, Item], None] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether any item may go."""
        return bool(self._ring)

    def push(
        self,
        queue: OriginQueue[OriginT, Item],
        item: Item,
        priority: int,
        *,
        is_front: bool = False,
    ) -> None:
        """Adds an item at the end of the queue of its origin, or at the front."""
        items = queue.by_priority.get(priority)
        if items is not None:
            if is_front:
                items.appendleft(item)
            else:
                items.append(item)
            return
        if not queue.priorities:
            self._count_waiting(queue.tenant_queue)
        queue.by_priority[priority] = deque((item,))
        insort(queue.priorities, priority)
        self._place(queue)

    def take(self) -> tuple[OriginT, Item, int] | None:
        """Removes the next item; returns its origin, the item and its length.

        If the room of its origin has fewer credits, it returns their number, and the item keeps its
        place: the caller splits it.
        """
        ring = self._ring
        while ring:
            tenant = next(iter(ring))
            priority = tenant.priorities[-1]
            queues = tenant.listed[priority]
            queue = next(iter(queues))
            items = queue.by_priority[priority]
            cost = len(items[0])
            is_split = queue.room is not None and queue.room.credits < cost
            if is_split:
                assert queue.room is not None
                cost = queue.room.credits
            if len(ring) == 1 and cost > tenant.deficit:
                tenant.deficit = cost  # it is alone: grant all the turns it needs at once
            if cost <= tenant.deficit:
                tenant.deficit -= cost
                item = items[0] if is_split else items.popleft()
                if items:
                    queues.move_to_end(queue)
                else:
                    del queue.by_priority[priority]
                    queue.priorities.pop()
                    self._drop_priority(queue)
                return queue.origin, item, cost
            tenant.deficit += self._grant(tenant)
            ring.move_to_end(tenant)
        return None

    def drop(
        self, queue: OriginQueue[OriginT, Item], choose: Callable[[deque[Item]], list[Item]]
    ) -> list[Item]:
        """Removes items of each priority; `choose` takes them out of the queue that it is given."""
        dropped: list[Item] = []
        for priority in tuple(queue.priorities):
            items = queue.by_priority[priority]
            dropped += choose(items)
            if not items:
                del queue.by_priority[priority]
                queue.priorities.remove(priority)
        if dropped:
            self._drop_priority(queue)
        return dropped

    def open_origin(self, queue: OriginQueue[OriginT, Item], *, is_open: bool) -> None:
        """Sets whether the items of an origin may go."""
        queue.is_open = is_open
        self._place(queue)

    def open_tenant(self, tenant: TenantQueue[OriginT, Item], *, is_open: bool) -> None:
        """Sets whether the items of a tenant may go."""
        tenant.is_open = is_open
        self._place_tenant(tenant)

    def _grant(self, tenant: TenantQueue[OriginT, Item]) -> int:
        return self._quantum * max(self._weight_of(tenant.tenant_id), 1)

    def _count_waiting(self, tenant: TenantQueue[OriginT, Item]) -> None:
        if tenant.waiting == 0:
            tenant.deficit = self._grant(tenant)
        tenant.waiting += 1

    def _drop_priority(self, queue: OriginQueue[OriginT, Item]) -> None:
        """Updates the lists after the last item of one priority was taken."""
        if not queue.priorities:
            queue.tenant_queue.waiting -= 1
        self._place(queue)

    def _place(self, queue: OriginQueue[OriginT, Item]) -> None:
        """Lists a queue under its current priority, or nowhere."""
        wanted = queue.priorities[-1] if queue.is_open and queue.priorities else None
        if wanted == queue.listed_at:
            return
        tenant = queue.tenant_queue
        if queue.listed_at is not None:
            queues = tenant.listed[queue.listed_at]
            del queues[queue]
            if not queues:
                del tenant.listed[queue.listed_at]
                tenant.priorities.remove(queue.listed_at)
        if wanted is not None:
            if wanted not in tenant.listed:
                tenant.listed[wanted] = OrderedDict()
                insort(tenant.priorities, wanted)
            tenant.listed[wanted][queue] = None
        queue.listed_at = wanted
        self._place_tenant(tenant)

    def _place_tenant(self, tenant: TenantQueue[OriginT, Item]) -> None:
        if tenant.is_open and tenant.priorities:
            self._ring.setdefault(tenant)
        else:
            self._ring.pop(tenant, None)
