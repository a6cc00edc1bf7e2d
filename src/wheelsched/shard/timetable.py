"""The timetable of armed runs: an alarm, a wheel, and what goes out together.

Invariant: whatever was added is handed over once, at its time and never before, tenant by tenant,
so that a crowd of one tenant does not stand in front of another's few.
"""

from collections.abc import Callable
from uuid import UUID

from msgspec import Struct, field

from wheelsched._wheel import ObjectWheel
from wheelsched.core.model import Lane
from wheelsched.ports import Clock, Route
from wheelsched.shard.armed import ArmedRun, Batch

_TICK_SHIFT = 18  # 0.26 ms: a run comes at the end of its tick


class Volley(Struct, eq=False):
    """What one tenant has to send at one moment."""

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
            if run.route.target.batch > 1:
                self.open[kind] = batch
        batch.runs.append(run)


class Timetable:
    """Armed runs by the time at which they go out."""

    def __init__(self, clock: Clock, on_due: Callable[[list[Volley]], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._volleys: dict[tuple[UUID, int], Volley] = {}
        self._wheel: ObjectWheel[Volley] = self._new_wheel()
        self._alarm = clock.alarm(self._ring)
        self._alarm_ns: int | None = None

    def add(self, run: ArmedRun) -> None:
        """Hands the run over at its time; at the loop's next turn when that has passed."""
        place = (run.route.tenant_id, run.fire_at_us)
        volley = self._volleys.get(place)
        if volley is None:
            volley = self._volleys[place] = Volley(*place)
            self._wheel.add(run.fire_at_us * 1_000, volley)
            self._plan()
        volley.add(run)

    def anchor(self) -> None:
        """Begins again from the clock's time, after that was set to another one."""
        pending = self._wheel.drain()
        self._wheel = self._new_wheel()
        for when_ns, volley in pending:
            self._wheel.add(when_ns, volley)
        self._alarm_ns = None
        self._plan()

    def close(self) -> None:
        self._alarm.close()
        self._wheel.close()

    def _new_wheel(self) -> ObjectWheel[Volley]:
        return ObjectWheel(self._clock.now_ns(), tick_shift=_TICK_SHIFT)

    def _plan(self) -> None:
        next_ns = self._wheel.next_expiry()
        if next_ns is not None and (self._alarm_ns is None or next_ns < self._alarm_ns):
            self._alarm_ns = next_ns
            self._alarm.set(next_ns)

    def _ring(self) -> None:
        self._alarm_ns = None
        due = self._wheel.advance(self._clock.now_ns())
        due.sort(
            key=lambda volley: volley.fire_at_us
        )  # those of a tick, or of the past, come mixed
        for volley in due:
            del self._volleys[volley.tenant_id, volley.fire_at_us]
        self._plan()
        if due:
            self._on_due(due)
