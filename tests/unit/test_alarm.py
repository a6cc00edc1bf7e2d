"""Both alarms on both loops with the real clock, independent of the machine's speed."""

import asyncio
from pathlib import Path

import pytest

from wheelsched.alarm import LoopAlarm
from wheelsched.clock import SystemClock

GENEROUS_S = 30
MILLISECOND_NS = 1_000_000
DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(params=["timerfd", "call_at", "timerfd with spin", "call_at with spin"])
def clock(request: pytest.FixtureRequest) -> SystemClock:
    way: str = request.param
    return SystemClock(timerfd=way.startswith("timerfd"), spin_us=200 if "spin" in way else 0)


class Bell:
    """Records when the alarm rang."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()
        self.rung_ns: list[int] = []

    def __call__(self) -> None:
        self.rung_ns.append(self._clock.now_ns())
        self._rung.set()

    async def heard(self) -> int:
        await asyncio.wait_for(self._rung.wait(), GENEROUS_S)
        self._rung.clear()
        return self.rung_ns[-1]


class EarlyAlarm(LoopAlarm):
    """An alarm on a loop that always wakes at once."""

    def close(self) -> None:
        pass

    def _plan_wake(self, wake_ns: int) -> None:
        self._loop.call_soon(self._wake)


def open_descriptors() -> int:
    return sum(1 for _ in DESCRIPTORS.iterdir())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_it_never_rings_early(clock: SystemClock) -> None:
    bell = Bell(clock)
    alarm = clock.alarm(bell)
    # Delays that are no whole milliseconds: where the loops' own timers round.
    for step in range(40):
        when_ns = clock.now_ns() + 137_000 * (step % 17) + 1
        alarm.set(when_ns)
        assert await bell.heard() >= when_ns
    alarm.close()
    assert len(bell.rung_ns) == 40


async def test_a_time_that_has_passed_rings_at_once_but_not_inside_set(clock: SystemClock) -> None:
    bell = Bell(clock)
    alarm = clock.alarm(bell)
    for when_ns in (clock.now_ns() - MILLISECOND_NS, 1, 0, -1):
        alarm.set(when_ns)
        rung_inside = len(bell.rung_ns)
        await bell.heard()
        assert len(bell.rung_ns) == rung_inside + 1
    alarm.close()


async def test_the_last_setting_counts(clock: SystemClock) -> None:
    bell = Bell(clock)
    alarm = clock.alarm(bell)
    alarm.set(clock.now_ns() + 3_600_000 * MILLISECOND_NS)
    alarm.set(clock.now_ns() + MILLISECOND_NS)
    await bell.heard()
    when_ns = clock.now_ns() + 20 * MILLISECOND_NS
    alarm.set(when_ns - 15 * MILLISECOND_NS)
    alarm.set(when_ns)
    assert await bell.heard() >= when_ns
    alarm.close()
    assert len(bell.rung_ns) == 2


async def test_a_wake_up_that_was_overtaken_by_a_new_setting_is_void(clock: SystemClock) -> None:
    bell = Bell(clock)
    alarm = clock.alarm(bell)

    def overtake() -> None:
        alarm.set(clock.now_ns() + 3_600_000 * MILLISECOND_NS)
        bell.rung_ns.clear()  # uvloop may have rung first, rightly

    alarm.set(0)
    asyncio.get_running_loop().call_soon(overtake)
    await turns(20)
    assert bell.rung_ns == []
    alarm.close()


async def test_a_closed_alarm_stays_silent(clock: SystemClock) -> None:
    bell = Bell(clock)
    alarm = clock.alarm(bell)
    alarm.set(0)
    alarm.close()
    alarm.close()
    await turns(20)
    assert bell.rung_ns == []


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="Linux only")
async def test_closing_gives_the_descriptor_back(clock: SystemClock) -> None:
    clock.alarm(lambda: None).close()  # what the loop itself opens on the way is open now
    before = open_descriptors()
    alarms = [clock.alarm(lambda: None) for _ in range(10)]
    for alarm in alarms:
        alarm.close()
    assert open_descriptors() == before


async def test_an_early_wake_up_waits_again() -> None:
    now_ns = 0

    def tell_time() -> int:
        nonlocal now_ns
        now_ns += 1_000
        return now_ns

    rung = asyncio.Event()
    alarm = EarlyAlarm(rung.set, now_ns=tell_time)
    alarm.set(100_000)
    await asyncio.wait_for(rung.wait(), GENEROUS_S)
    assert now_ns >= 100_000
    alarm.close()


async def test_an_error_while_it_wakes_does_not_silence_it_for_good() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
    clock = SystemClock()
    readings = iter([RuntimeError("once")])

    def now_ns() -> int:
        for error in readings:
            raise error
        return clock.now_ns()

    bell = Bell(clock)
    EarlyAlarm(bell, now_ns=now_ns).set(clock.now_ns() + MILLISECOND_NS)
    await bell.heard()
    assert len(errors) == 1
