import asyncio
import subprocess
import sys
import time

import pytest

from wheelsched.aio import AsyncWheel
from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.core.offset import SLEW_PARTS, STEP_SAMPLES, ClockSample
from wheelsched.testing import VirtualClock
from wheelsched.testing.clock import VirtualAlarm

MS = 1_000_000
SECOND = 1_000 * MS
OFFSET_NS = 1_794_837_600 * SECOND


def sample(inner: VirtualClock, offset_ns: int = OFFSET_NS) -> ClockSample:
    """A round trip in no time, which tells the offset to half a microsecond."""
    now_ns = inner.now_ns()
    return ClockSample(
        sent_ns=now_ns, database_us=(now_ns + offset_ns) // 1_000, received_ns=now_ns
    )


@pytest.fixture
def inner() -> VirtualClock:
    return VirtualClock(5 * SECOND)


@pytest.fixture
def clock(inner: VirtualClock) -> DatabaseClock:
    return DatabaseClock(inner, sample(inner))


def correct(clock: DatabaseClock, inner: VirtualClock, correction_ns: int) -> bool:
    return clock.add_sample(sample(inner, OFFSET_NS + correction_ns))


def step(clock: DatabaseClock, inner: VirtualClock, step_ns: int) -> list[bool]:
    return [correct(clock, inner, step_ns) for _ in range(STEP_SAMPLES)]


async def test_it_tells_unix_time_by_the_database(
    clock: DatabaseClock, inner: VirtualClock
) -> None:
    assert abs(clock.now_ns() - 5 * SECOND - OFFSET_NS) < 1_000
    assert abs(clock.now_us() - (5 * SECOND + OFFSET_NS) // 1_000) <= 1
    assert abs(clock.offset_us - OFFSET_NS // 1_000) <= 1
    assert clock.error_us == 1
    await inner.advance(SECOND)
    assert abs(clock.now_ns() - 6 * SECOND - OFFSET_NS) < 1_000
    assert clock.error_us == 1_112


@pytest.mark.parametrize("correction_ns", [20 * MS, -20 * MS])
async def test_a_small_correction_is_spread_and_counts_as_error_until_made(
    clock: DatabaseClock, inner: VirtualClock, correction_ns: int
) -> None:
    before_ns = clock.now_ns()
    assert not correct(clock, inner, correction_ns)
    assert clock.now_ns() == before_ns
    assert clock.error_us > 20_000
    await inner.advance(10 * MS * SLEW_PARTS)
    made_ns = clock.now_ns() - before_ns - 10 * MS * SLEW_PARTS
    assert made_ns == correction_ns // 2
    assert 10_000 < clock.error_us < 12_300
    await inner.advance(10 * MS * SLEW_PARTS)
    assert clock.now_ns() - before_ns - 20 * MS * SLEW_PARTS == correction_ns


@pytest.mark.parametrize("step_ns", [3_600 * SECOND, -3_600 * SECOND])
async def test_a_step_is_taken_at_once_and_told_once(
    clock: DatabaseClock, inner: VirtualClock, step_ns: int
) -> None:
    before_ns = clock.now_ns()
    assert step(clock, inner, step_ns) == [False, False, True]
    assert clock.now_ns() == before_ns + step_ns
    assert not correct(clock, inner, step_ns)


async def test_it_is_in_doubt_until_enough_readings_agree(
    clock: DatabaseClock, inner: VirtualClock
) -> None:
    doubts = []
    for correction_ns in (SECOND, 0, SECOND, SECOND, SECOND):
        correct(clock, inner, correction_ns)
        doubts.append(clock.is_in_doubt)
    assert doubts == [True, False, True, True, False]


async def test_a_clock_that_runs_away_slowly_is_caught_up_with_by_a_step(
    clock: DatabaseClock, inner: VirtualClock
) -> None:
    steps = 0
    for second in range(1, 60):
        await inner.advance(SECOND)
        steps += correct(clock, inner, 50 * MS * second)
        assert clock.error_us < 200_000
    assert steps > 0


async def test_an_alarm_rings_at_its_time(clock: DatabaseClock, inner: VirtualClock) -> None:
    rung: list[int] = []
    alarm = clock.alarm(lambda: rung.append(clock.now_ns()))
    when_ns = clock.now_ns() + SECOND
    alarm.set(when_ns)
    await inner.advance(SECOND - 1)
    assert rung == []
    await inner.advance(1)
    assert rung == [when_ns]
    await inner.advance(SECOND)
    assert rung == [when_ns]


@pytest.mark.parametrize("correction_ns", [20 * MS, -20 * MS])
@pytest.mark.parametrize("delay_ns", [SECOND, 10 * SECOND])
async def test_an_alarm_is_on_time_when_the_offset_is_corrected_meanwhile(
    clock: DatabaseClock, inner: VirtualClock, correction_ns: int, delay_ns: int
) -> None:
    rung: list[int] = []
    alarm = clock.alarm(lambda: rung.append(clock.now_ns()))
    when_ns = clock.now_ns() + delay_ns
    alarm.set(when_ns)
    correct(clock, inner, correction_ns)
    await inner.advance(2 * delay_ns)
    assert len(rung) == 1
    assert 0 <= rung[0] - when_ns <= 1


async def test_an_alarm_is_planned_anew_at_a_step(
    clock: DatabaseClock, inner: VirtualClock
) -> None:
    rung: list[str] = []
    when_ns = clock.now_ns() + 3_600 * SECOND
    alarm = clock.alarm(lambda: rung.append("set"))
    alarm.set(when_ns)
    closed = clock.alarm(lambda: rung.append("closed"))
    closed.set(when_ns)
    closed.close()
    never = clock.alarm(lambda: rung.append("never set"))
    step(clock, inner, 3_600 * SECOND)
    await inner.run_ready()
    assert rung == ["set"]
    never.close()

    alarm.set(when_ns + 2 * SECOND)
    step(clock, inner, 0)
    await inner.advance(3_600 * SECOND)
    assert rung == ["set"]
    await inner.advance(2 * SECOND)
    assert rung == ["set", "set"]


async def test_an_alarm_that_is_woken_early_waits_again() -> None:
    class Hasty(VirtualClock):
        """Its alarms ring a millisecond early, the first time."""

        early_ns = MS

        def set_alarm(self, alarm: VirtualAlarm, when_ns: int) -> int:
            early_ns, self.early_ns = self.early_ns, 0
            return super().set_alarm(alarm, when_ns - early_ns)

    hasty = Hasty(SECOND)
    clock = DatabaseClock(hasty, sample(hasty))
    rung: list[int] = []
    when_ns = clock.now_ns() + SECOND
    clock.alarm(lambda: rung.append(clock.now_ns())).set(when_ns)
    await hasty.advance(2 * SECOND)
    assert rung == [when_ns]


async def test_a_sleep_is_as_long_as_the_inner_clock_says(
    clock: DatabaseClock, inner: VirtualClock
) -> None:
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(SECOND))
        await inner.run_ready()
        step(clock, inner, 3_600 * SECOND)
        await inner.advance(SECOND - 1)
        assert not sleeper.done()
        await inner.advance(1)
        assert sleeper.done()


async def test_a_wheel_runs_on_it(clock: DatabaseClock, inner: VirtualClock) -> None:
    fired: list[int] = []
    async with AsyncWheel[None](clock) as wheel:
        for delay_s in (1, 30, 600):
            wheel.call_later(delay_s, lambda: fired.append(clock.now_ns()))
        correct(clock, inner, 20 * MS)
        start_ns = clock.now_ns()
        await inner.advance(700 * SECOND)
    late_ns = [at - start_ns - s * SECOND for at, s in zip(fired, (1, 30, 600), strict=True)]
    assert all(0 <= each <= 2 * MS for each in late_ns)


async def test_it_runs_on_the_real_clock_without_the_hosts_wall_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: object) -> float:
        raise AssertionError("the wall clock was read")

    for name in ("time", "time_ns"):
        monkeypatch.setattr(time, name, forbidden)
    system = SystemClock()
    now_ns = system.now_ns()
    clock = DatabaseClock(system, ClockSample(now_ns, 1_000_000, now_ns))
    rung: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    alarm = clock.alarm(lambda: rung.set_result(clock.now_ns()))
    when_ns = clock.now_ns() + MS
    alarm.set(when_ns)
    assert await asyncio.wait_for(rung, 30) >= when_ns
    alarm.close()


def test_the_wheel_alone_stays_cheap_to_import() -> None:
    loaded = "import sys, wheelsched.aio; sys.exit('msgspec' in sys.modules)"
    subprocess.run([sys.executable, "-c", loaded], check=True, timeout=60)
