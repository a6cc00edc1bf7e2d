"""The batches of a fair queue that wait for credits of a room.

Invariant: `Room.waiting` is the number of runs queued in the origins of the room. Each origin has
one limit of the wait, so its batches expire in the order in which they were queued.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Generic
from uuid import UUID

from wheelsched.fairness.batch import B
from wheelsched.fairness.limits import Limits, Origin
from wheelsched.ports import Room


class Rooms(Generic[B]):
    """The rooms with batches that wait, or that were taken a moment ago."""

    def __init__(self, limits: Limits[B], note_idle: Callable[[Origin[B], int], None]) -> None:
        self._limits = limits
        self._note_idle = note_idle

    @property
    def known(self) -> Collection[Room]:
        return self._limits.by_room.keys()

    @property
    def runs(self) -> int:
        """The number of runs that wait."""
        return sum([room.waiting for room in self.known])

    def runs_by_tenant(self) -> Counter[UUID]:
        """The number of runs that wait, for each tenant."""
        counts = Counter[UUID]()
        for origins in self._limits.by_room.values():
            for origin in origins:
                counts[origin.tenant.tenant_id] += origin.queued
        return counts

    @property
    def stuck(self) -> int:
        """The number of runs on time that wait in rooms without credits."""
        return sum([room.waiting - room.late for room in self.known if not room.credits])

    def changed(self, room: Room) -> None:
        """Opens the origins of a room that has credits and is not held, or closes them."""
        for origin in self._limits.by_room.get(room, ()):
            self._limits.update_origin(origin)

    def oldest(self, room: Room) -> B | None:
        """The batch that expires next."""
        fronts = (
            items[0]
            for origin in self._limits.by_room.get(room, ())
            for queue in origin.queues
            for items in queue.by_priority.values()
        )
        return min(fronts, key=lambda batch: batch.claim_by_us, default=None)

    def take_expired(self, now_us: int) -> list[B]:
        """Removes the batches that have waited too long."""
        expired: list[B] = []
        for room, origins in self._limits.by_room.items():
            if room.waiting:
                for origin in origins:
                    expired += self._take_expired(origin, room, now_us)
        return expired

    def _take_expired(self, origin: Origin[B], room: Room, now_us: int) -> list[B]:
        def choose(items: deque[B]) -> list[B]:
            taken = []
            while items and items[0].claim_by_us <= now_us:
                taken.append(items.popleft())
            return taken

        expired: list[B] = []
        for is_late, lane in enumerate(self._limits.lanes):
            dropped = lane.round_robin.drop(origin.queues[is_late], choose)
            runs = sum(map(len, dropped))
            if runs:
                lane.queued -= runs
                origin.queued -= runs
                count_waiting(room, -runs, is_late)
                expired += dropped
        if expired:
            self._note_idle(origin, now_us)
        return expired

    def drop_withdrawn(self, room: Room, strip: Callable[[B], int], now_us: int) -> None:
        """Removes runs that were withdrawn while they waited.

        `strip` removes them from a batch, and returns how many it removed.
        """
        room.withdrawn = 0
        for origin in self._limits.by_room.get(room, ()):
            for is_late, lane in enumerate(self._limits.lanes):
                before = origin.queued

                def choose(items: deque[B], origin: Origin[B] = origin) -> list[B]:
                    origin.queued -= sum(map(strip, items))
                    empty = [batch for batch in items if not len(batch)]
                    if empty:
                        kept = [batch for batch in items if len(batch)]
                        items.clear()
                        items.extend(kept)
                    return empty

                lane.round_robin.drop(origin.queues[is_late], choose)
                lane.queued -= before - origin.queued
                count_waiting(room, origin.queued - before, is_late)
            self._note_idle(origin, now_us)


def count_waiting(room: Room, runs: int, is_late: int) -> None:
    """Counts runs of a lane that begin to wait, or wait no more."""
    room.waiting += runs
    if is_late:
        room.late += runs
    room.waiting_changed()
