"""The timetable of armed runs, and the due runs that are not yet in the fair queue.

Invariant: the timetable hands over each run once, when it is due and never before. Tenants take
turns: a tenant with very many runs does not delay one with a few.
"""

from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct, field

from wheelsched._wheel import ObjectWheel
from wheelsched.core.model import Lane
from wheelsched.ports import Clock, Route
from wheelsched.shard.runs.armed_run import ArmedRun, Batch

_TICK_SHIFT = 18  # 0.26 ms; a run is due at the end of its tick


class DueGroup(Struct, eq=False):
    """The runs of one tenant that are due at one moment, in batches."""

    tenant_id: UUID
    fire_at_us: int
    batches: list[Batch] = field(default_factory=list)
    open: dict[tuple[Route, Lane, int, bool], Batch] = field(default_factory=dict)

    def add(self, run: ArmedRun) -> None:
        kind = (run.route, run.lane, run.priority, run.is_first)
        batch = self.open.get(kind)
        if batch is None or batch.is_full:
            batch = Batch(run.route, run.lane, run.priority, self.fire_at_us, [])
            self.batches.append(batch)
            if run.route.batch > 1:
                self.open[kind] = batch
        batch.runs.append(run)


class DueRuns:
    """Due runs on their way into the fair queue. Tenants take turns."""

    def __init__(self) -> None:
        self._by_tenant: dict[UUID, deque[Batch]] = {}
        self.flowed_us = 0  # when a request was last started, by the machine's clock

    def __bool__(self) -> bool:
        return bool(self._by_tenant)

    def put(self, groups: Sequence[DueGroup]) -> None:
        for group in groups:
            self._by_tenant.setdefault(group.tenant_id, deque()).extend(group.batches)

    def take(self, most: int, most_per_tenant: int) -> list[Batch]:
        """Takes about `most` runs, a few of each tenant in turn."""
        taken: list[Batch] = []
        count = 0
        while self._by_tenant and count < most:
            tenant_id, due = next(iter(self._by_tenant.items()))
            del self._by_tenant[tenant_id]
            until = count + most_per_tenant
            while due and count < until:
                batch = due.popleft()
                count += len(batch)
                taken.append(batch)
            if due:
                self._by_tenant[tenant_id] = due
        return taken


class Timetable:
    """Armed runs by the time at which they are sent.

    The alarm calls `on_due` directly. Waking a task would cost a loop iteration at the very
    millisecond that counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.on_due: Callable[[list[DueGroup]], None]
        self._groups: dict[tuple[UUID, int], DueGroup] = {}
        self._wheel: ObjectWheel[DueGroup] = self._new_wheel()
        self._alarm = clock.alarm(self._ring)
        self._alarm_ns: int | None = None

    def add(self, run: ArmedRun) -> None:
        """Hands the run over when it is due, or in the next loop iteration if it is overdue."""
        place = (run.route.tenant_id, run.fire_at_us)
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = DueGroup(*place)
            self._wheel.add(run.fire_at_us * 1_000, group)
            self._set_alarm()
        group.add(run)

    def anchor(self) -> None:
        """Restarts the wheel after the clock was stepped."""
        pending = self._wheel.drain()
        self._wheel = self._new_wheel()
        for when_ns, group in pending:
            self._wheel.add(when_ns, group)
        self._alarm_ns = None
        self._set_alarm()

    def close(self) -> None:
        self._alarm.close()
        self._wheel.close()

    def _new_wheel(self) -> ObjectWheel[DueGroup]:
        return ObjectWheel(self._clock.now_ns(), tick_shift=_TICK_SHIFT)

    def _set_alarm(self) -> None:
        next_ns = self._wheel.next_expiry()
        if next_ns is not None and (self._alarm_ns is None or next_ns < self._alarm_ns):
            self._alarm_ns = next_ns
            self._alarm.set(next_ns)

    def _ring(self) -> None:
        self._alarm_ns = None
        due = self._wheel.advance(self._clock.now_ns())
        due.sort(key=lambda group: group.fire_at_us)  # a tick returns them in no order
        for group in due:
            del self._groups[group.tenant_id, group.fire_at_us]
        self._set_alarm()
        if due:
            self.on_due(due)
