"""The credits of workers, and the queues that may use them.

Invariant: the credits of a line are the sum of those of its pools whose desks are not paused. Each
run that is handed out uses one credit, in every line of its pool. The pools of a line take turns.
"""

from collections.abc import Callable, Sequence
from uuid import UUID
from weakref import WeakValueDictionary

from wheelsched.ports import Room
from wheelsched.ports.work import Pool, QueueRun, Receiver


class DeskPool:
    """The workers behind one desk that take runs of the same queues, and their unused credits."""

    __slots__ = ("credits", "is_paused", "lines", "pool", "receiver")

    def __init__(self, pool: Pool, receiver: Receiver, lines: Sequence["Line"]) -> None:
        self.pool = pool
        self.receiver = receiver
        self.lines = tuple(lines)
        self.credits = 0
        self.is_paused = False

    def add(self, count: int) -> None:
        """Adds credits, or removes them if the number is negative."""
        before, self.credits = self.credits, self.credits + count
        assert self.credits >= 0
        if not self.is_paused:
            self._change(before, self.credits)

    def pause(self, *, is_paused: bool) -> None:
        """Sets whether the credits can be used."""
        if self.is_paused is not is_paused:
            self.is_paused = is_paused
            self._change(*((self.credits, 0) if is_paused else (0, self.credits)))

    def _change(self, before: int, after: int) -> None:
        if before == after:
            return
        for line in self.lines:
            if not before:
                line.ready[self] = None
            elif not after:
                del line.ready[self]
            line.change(after - before)


class Line(Room):
    """One queue of a tenant: the room of its routes."""

    __slots__ = ("_on_credits", "_on_waiting", "pools", "queue", "ready", "tenant_id", "told")

    def __init__(
        self,
        tenant_id: UUID,
        queue: str,
        on_credits: Callable[["Line"], None],
        on_waiting: Callable[["Line"], None],
    ) -> None:
        super().__init__()
        self.tenant_id = tenant_id
        self.queue = queue
        self._on_credits = on_credits
        self._on_waiting = on_waiting
        self.pools: dict[DeskPool, None] = {}
        self.ready: dict[DeskPool, None] = {}  # those with credits, the next one first
        self.told = 0  # how many runs wait, as the receivers know it

    @property
    def without_credit(self) -> int:
        """How many runs wait because there is no credit."""
        return 0 if self.credits else self.waiting

    def waiting_changed(self) -> None:
        if self.without_credit != self.told:
            self._on_waiting(self)

    def change(self, count: int) -> None:
        """Adds or removes credits."""
        before, self.credits = self.credits, self.credits + count
        if not before or not self.credits:
            self._on_credits(self)
            self.waiting_changed()

    def hand_out(self, runs: Sequence[QueueRun], until_us: int) -> None:
        """Gives runs to the pools, to each an equal part as far as its credits go.

        A receiver may pause its desk at once, so all parts are decided before the first is given.
        """
        parts: list[tuple[DeskPool, Sequence[QueueRun]]] = []
        start = turns = 0
        while start < len(runs):
            pool = next(iter(self.ready))
            turns = turns or len(self.ready)
            part = -(-(len(runs) - start) // turns)
            turns -= 1
            end = start + min(part, pool.credits)
            del self.ready[pool]  # to the end of the line
            self.ready[pool] = None
            pool.add(start - end)
            parts.append((pool, runs[start:end]))
            start = end
        for pool, given in parts:
            pool.receiver.hand_out(pool.pool, given, until_us)


class Lines:
    """The lines that a route or a pool of workers uses."""

    def __init__(
        self, on_credits: Callable[[Line], None], on_waiting: Callable[[Line], None]
    ) -> None:
        self._on_credits = on_credits
        self._on_waiting = on_waiting
        self._lines: WeakValueDictionary[tuple[UUID, str], Line] = WeakValueDictionary()

    def get(self, tenant_id: UUID, queue: str) -> Line:
        line = self._lines.get((tenant_id, queue))
        if line is None:
            line = Line(tenant_id, queue, self._on_credits, self._on_waiting)
            self._lines[tenant_id, queue] = line
        return line

    def all(self) -> list[Line]:
        return list(self._lines.values())
