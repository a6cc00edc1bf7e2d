from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from tests.unit.shard.armed_runs import armed

from wheelsched.clock import DatabaseClock
from wheelsched.core.model import HttpTarget, Lane
from wheelsched.core.offset import ClockSample
from wheelsched.ports import Route
from wheelsched.shard.firing.timetable import DueGroup, Timetable
from wheelsched.testing import VirtualClock

MS = 1_000


def route(tenant: int, batch: int = 1) -> Route:
    target = HttpTarget(url="http://worker.example/", batch=batch)
    origin = "http://worker.example"
    return Route(tenant_id=UUID(int=tenant), target=target, batch=batch, origin=origin)


class Told:
    """Collects what a timetable hands over."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.groups: list[tuple[int, DueGroup]] = []

    def __call__(self, due: list[DueGroup]) -> None:
        self.groups += [(self._clock.now_ns(), group) for group in due]


@asynccontextmanager
async def running(clock: VirtualClock) -> AsyncIterator[tuple[Timetable, Told]]:
    told = Told(clock)
    timetable = Timetable(clock)
    timetable.on_due = told
    try:
        yield timetable, told
    finally:
        timetable.close()


async def test_runs_come_due_at_their_time_and_not_before() -> None:
    clock = VirtualClock(10**9)
    async with running(clock) as (timetable, told):
        timetable.add(armed(2_000_000))
        timetable.add(armed(1_500_000))
        await clock.advance_to(1_499_999_000)
        assert told.groups == []
        await clock.advance_to(3 * 10**9)
        times = [(at_ns, group.fire_at_us * 1_000) for at_ns, group in told.groups]
        assert [due_ns for _, due_ns in times] == [1_500_000_000, 2_000_000_000]
        assert all(0 <= at_ns - due_ns < 300 * MS for at_ns, due_ns in times)


async def test_an_overdue_run_comes_at_once() -> None:
    clock = VirtualClock(10**9)
    async with running(clock) as (timetable, told):
        timetable.add(armed(5))
        await clock.run_ready()
        assert len(told.groups) == 1


async def test_a_tenant_has_one_group_per_moment() -> None:
    clock = VirtualClock(10**9)
    few, many = route(1), route(2)
    async with running(clock) as (timetable, told):
        for _ in range(100):
            timetable.add(armed(2_000_000, route=many))
        timetable.add(armed(2_000_000, route=few))
        await clock.advance_to(3 * 10**9)
    sizes = {group.tenant_id: len(group.batches) for _, group in told.groups}
    assert sizes == {UUID(int=1): 1, UUID(int=2): 100}


async def test_a_batch_has_runs_of_one_route_and_lane() -> None:
    clock = VirtualClock(10**9)
    first, second = route(1, batch=3), route(1, batch=3)
    async with running(clock) as (timetable, told):
        for number in range(8):
            timetable.add(armed(2_000_000, route=first if number % 2 else second))
        timetable.add(armed(2_000_000, route=first, lane=Lane.LATE))
        await clock.advance_to(3 * 10**9)
    ((_, group),) = told.groups
    sizes = sorted((len(batch), batch.lane) for batch in group.batches)
    assert sizes == [(1, "late"), (1, "on_time"), (1, "on_time"), (3, "on_time"), (3, "on_time")]
    assert all(run.route is batch.route for batch in group.batches for run in batch.runs)


class Shifted(DatabaseClock):
    """The database's clock, on a virtual one."""

    def __init__(self, clock: VirtualClock) -> None:
        now_ns = clock.now_ns()
        self._machine = clock
        super().__init__(clock, ClockSample(now_ns, now_ns // MS, now_ns))

    def step(self, shift_ns: int) -> None:
        now_ns = self._machine.now_ns()
        sample = ClockSample(now_ns, (now_ns + shift_ns) // MS, now_ns)
        assert [self.add_sample(sample) for _ in range(3)][-1]


async def test_no_run_is_early_after_the_clock_steps_back() -> None:
    clock = VirtualClock(10**9)
    shifted = Shifted(clock)
    told = Told(clock)
    timetable = Timetable(shifted)
    timetable.on_due = told
    try:
        timetable.add(armed(60_000_000))
        await clock.advance_to(50 * 10**9)
        shifted.step(-40 * 10**9)
        timetable.anchor()
        await clock.advance_to(99 * 10**9)
        assert told.groups == []
        await clock.advance_to(101 * 10**9)
        assert len(told.groups) == 1
    finally:
        timetable.close()
