"""Fire: whose turn it is in one lane. Deficit round robin between tenants, priorities within one.

Invariant: a line is listed with its tenant's share exactly while it is open and something waits
in it, at the highest priority that does; a share is in the ring exactly while it is open and a
line is listed with it. So the next item is found without looking at anything that may not go.

A tenant whose turn it is goes on while its credit covers the next item, whose cost is its length.
Then it gets a quantum for each unit of its weight and goes to the end of the ring. What a turn
left over counts in the next one, unless nothing of the tenant waits any more: credit is not saved
up in idle times. Among lines of one tenant with the same priority, each item goes to the next.
"""

from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sized
from typing import Generic, TypeVar
from uuid import UUID

Owner = TypeVar("Owner")
Item = TypeVar("Item", bound=Sized)


class Share(Generic[Owner, Item]):
    """A tenant's part of one lane."""

    __slots__ = ("credit", "is_open", "listed", "priorities", "tenant_id", "waiting")

    def __init__(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.is_open = True
        self.credit = 0
        self.waiting = 0  # lines with something in them, listed or not
        self.listed: dict[int, OrderedDict[Line[Owner, Item], None]] = {}  # by priority
        self.priorities: list[int] = []  # of `listed`, the highest last


class Line(Generic[Owner, Item]):
    """What waits for one owner in one lane: by priority, and first come, first served in each."""

    __slots__ = ("is_open", "listed_at", "owner", "priorities", "queues", "share")

    def __init__(self, owner: Owner, share: Share[Owner, Item]) -> None:
        self.owner = owner
        self.share = share
        self.is_open = True
        self.listed_at: int | None = None
        self.queues: dict[int, deque[Item]] = {}  # none of them is empty
        self.priorities: list[int] = []  # of `queues`, the highest last


class Turns(Generic[Owner, Item]):
    """The ring of one lane."""

    def __init__(self, quantum: int, weight_of: Callable[[UUID], int]) -> None:
        self._quantum = quantum
        self._weight_of = weight_of
        self._ring: OrderedDict[Share[Owner, Item], None] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether anything may go."""
        return bool(self._ring)

    def push(self, line: Line[Owner, Item], item: Item, priority: int) -> None:
        """Puts an item at the end of its queue."""
        queue = line.queues.get(priority)
        if queue is not None:
            queue.append(item)
            return
        if not line.priorities:
            self._count_waiting(line.share)
        line.queues[priority] = deque((item,))
        insort(line.priorities, priority)
        self._place(line)

    def take(self) -> tuple[Owner, Item, int] | None:
        """Takes the item whose turn it is out of its line; with its owner and its length."""
        ring = self._ring
        while ring:
            share = next(iter(ring))
            priority = share.priorities[-1]
            lines = share.listed[priority]
            line = next(iter(lines))
            queue = line.queues[priority]
            cost = len(queue[0])
            if len(ring) == 1 and cost > share.credit:
                share.credit = cost  # as many turns as it needs, and nobody in between
            if cost <= share.credit:
                share.credit -= cost
                item = queue.popleft()
                if queue:
                    lines.move_to_end(line)
                else:
                    del line.queues[priority]
                    line.priorities.pop()
                    self._settle(line)
                return line.owner, item, cost
            share.credit += self._grant(share)
            ring.move_to_end(share)
        return None

    def open_line(self, line: Line[Owner, Item], *, is_open: bool) -> None:
        """Says whether items of the line may go."""
        line.is_open = is_open
        self._place(line)

    def open_share(self, share: Share[Owner, Item], *, is_open: bool) -> None:
        """Says whether items of the tenant may go."""
        share.is_open = is_open
        self._place_share(share)

    def _grant(self, share: Share[Owner, Item]) -> int:
        return self._quantum * max(self._weight_of(share.tenant_id), 1)

    def _count_waiting(self, share: Share[Owner, Item]) -> None:
        if share.waiting == 0:
            share.credit = self._grant(share)
        share.waiting += 1

    def _settle(self, line: Line[Owner, Item]) -> None:
        """After a queue of the line came to its end."""
        if not line.priorities:
            line.share.waiting -= 1
        self._place(line)

    def _place(self, line: Line[Owner, Item]) -> None:
        """Lists a line where it belongs now, or nowhere."""
        wanted = line.priorities[-1] if line.is_open and line.priorities else None
        if wanted == line.listed_at:
            return
        share = line.share
        if line.listed_at is not None:
            lines = share.listed[line.listed_at]
            del lines[line]
            if not lines:
                del share.listed[line.listed_at]
                share.priorities.remove(line.listed_at)
        if wanted is not None:
            if wanted not in share.listed:
                share.listed[wanted] = OrderedDict()
                insort(share.priorities, wanted)
            share.listed[wanted][line] = None
        line.listed_at = wanted
        self._place_share(share)

    def _place_share(self, share: Share[Owner, Item]) -> None:
        if share.is_open and share.priorities:
            self._ring.setdefault(share)
        else:
            self._ring.pop(share, None)
