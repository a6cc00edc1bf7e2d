import asyncio
import time

import pytest

from wheelsched.alarm import CallAtAlarm, TimerfdAlarm
from wheelsched.clock import SystemClock


def test_the_time_never_goes_back() -> None:
    clock = SystemClock()
    times_ns = [clock.now_ns() for _ in range(1_000)]
    assert times_ns == sorted(times_ns)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux only")
def test_suspended_time_counts() -> None:
    before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    now_ns = SystemClock().now_ns()
    assert before_ns <= now_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_the_time_of_day_is_the_machine_s() -> None:
    before_us = time.time_ns() // 1_000
    wall_us = SystemClock().wall_us()
    assert before_us <= wall_us <= time.time_ns() // 1_000


@pytest.mark.parametrize("delay_ns", [0, 1, 300_000, 1_700_000])
async def test_a_sleep_is_never_short(delay_ns: int) -> None:
    clock = SystemClock()
    for _ in range(10):
        start_ns = clock.now_ns()
        await clock.sleep(delay_ns)
        assert clock.now_ns() - start_ns >= delay_ns


class Work:
    """Tasks that do a part of their work in each iteration of the loop that they get."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.done = ""
        self.turns: list[int] = []  # in which each portion was done
        self._turn = 0

    async def do(self, *names: str, portions: int) -> None:
        turning = asyncio.create_task(self._count_turns())
        await asyncio.sleep(0)
        await asyncio.wait([self.begin(name, portions) for name in names])
        turning.cancel()

    def begin(self, name: str, portions: int) -> asyncio.Task[None]:
        return asyncio.create_task(self._do(name, portions))

    async def _do(self, name: str, portions: int) -> None:
        for _ in range(portions):
            await self.clock.sleep(0)
            self.done += name
            self.turns.append(self._turn)

    async def _count_turns(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)


async def test_each_iteration_of_the_loop_goes_to_one_waiting_task() -> None:
    work = Work()
    await work.do("a", "b", "c", portions=5)
    assert work.done == "abc" * 5
    first = work.turns[0]
    assert work.turns == list(range(first, first + 15))


async def test_a_cancelled_waiter_delays_no_other() -> None:
    work = Work()
    tasks = [work.begin(name, 3) for name in "abcd"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.wait(tasks)
    assert work.done == "ac" * 3
    await work.do("e", portions=2)
    assert work.done.endswith("ee")


def test_a_clock_goes_on_with_another_loop() -> None:
    work = Work()
    for _ in range(2):
        asyncio.run(asyncio.wait_for(work.do("a", portions=2), 60))
    assert work.done == "aaaa"


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux only")
async def test_the_alarm_is_a_timerfd_unless_told_otherwise() -> None:
    precise = SystemClock().alarm(lambda: None)
    coarse = SystemClock(timerfd=False).alarm(lambda: None)
    assert isinstance(precise, TimerfdAlarm)
    assert isinstance(coarse, CallAtAlarm)
    precise.close()
    coarse.close()


async def test_where_timerfd_is_forbidden_the_loop_wakes_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden() -> int:
        raise PermissionError

    monkeypatch.setattr("wheelsched.alarm._timerfd_create", forbidden)
    rung = asyncio.Event()
    alarm = SystemClock().alarm(rung.set)
    assert isinstance(alarm, CallAtAlarm)
    alarm.set(0)
    await asyncio.wait_for(rung.wait(), 30)


@pytest.mark.parametrize("spin_us", [-1, 1_001])
def test_a_spin_is_at_most_a_millisecond(spin_us: int) -> None:
    with pytest.raises(ValueError, match=f"between 0 and 1000, not {spin_us}"):
        SystemClock(spin_us=spin_us)
