import asyncio
import itertools
from functools import partial

import pytest

from wheelsched.testing import VirtualClock


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock = VirtualClock(1_000)
    await asyncio.sleep(0)
    assert clock.now_ns() == 1_000
    await clock.advance(500)
    assert clock.now_ns() == 1_500
    await clock.advance_to(2_000)
    assert clock.now_ns() == 2_000
    assert clock.wall_us() == 2


async def test_alarms_ring_in_the_order_of_their_times_and_at_their_times() -> None:
    clock = VirtualClock()
    rung: list[tuple[str, int]] = []

    def ring(name: str) -> None:
        rung.append((name, clock.now_ns()))

    for name, when_ns in (("last", 30), ("first", 10), ("second", 20), ("second too", 20)):
        clock.alarm(partial(ring, name)).set(when_ns)
    await clock.advance(25)
    assert rung == [("first", 10), ("second", 20), ("second too", 20)]
    await clock.advance(5)
    assert rung[3:] == [("last", 30)]


async def test_an_alarm_rings_once_and_only_for_its_last_setting() -> None:
    clock = VirtualClock()
    rung: list[int] = []
    alarm = clock.alarm(lambda: rung.append(clock.now_ns()))
    alarm.set(10)
    alarm.set(20)
    await clock.advance(100)
    assert rung == [20]


async def test_a_closed_alarm_stays_silent() -> None:
    clock = VirtualClock()
    rung: list[int] = []
    alarm = clock.alarm(lambda: rung.append(clock.now_ns()))
    alarm.set(10)
    alarm.close()
    await clock.advance(100)
    assert rung == []
    assert clock.next_alarm_ns() is None


async def test_a_time_that_has_passed_rings_at_the_next_turn_without_advancing() -> None:
    clock = VirtualClock(50)
    rung: list[int] = []
    clock.alarm(lambda: rung.append(clock.now_ns())).set(20)
    assert rung == []
    await clock.run_ready()
    assert rung == [50]


async def test_everything_ready_runs_between_two_alarms() -> None:
    clock = VirtualClock()
    steps: list[str] = []

    async def sleeper(name: str, delay_ns: int) -> None:
        await clock.sleep(delay_ns)
        for turn in range(3):
            steps.append(f"{name} {turn} at {clock.now_ns()}")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("b", 20))
        group.create_task(sleeper("a", 10))
        await clock.advance(20)
    assert steps == [
        *(f"a {turn} at 10" for turn in range(3)),
        *(f"b {turn} at 20" for turn in range(3)),
    ]


async def test_a_woken_task_may_sleep_again_within_the_same_advance() -> None:
    clock = VirtualClock()
    woken: list[int] = []

    async def every_ten() -> None:
        for _ in range(5):
            await clock.sleep(10)
            woken.append(clock.now_ns())

    async with asyncio.TaskGroup() as group:
        group.create_task(every_ten())
        await clock.advance(50)
    assert woken == [10, 20, 30, 40, 50]


async def test_a_cancelled_sleep_leaves_no_alarm_behind() -> None:
    clock = VirtualClock()
    sleeper = asyncio.ensure_future(clock.sleep(10))
    await clock.run_ready()
    assert clock.next_alarm_ns() == 10
    sleeper.cancel()
    await clock.run_ready()
    assert clock.next_alarm_ns() is None


async def test_sleeping_for_nothing_is_one_turn_of_the_loop() -> None:
    clock = VirtualClock()
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    await clock.sleep(0)
    assert others == ["ran"]


async def test_the_clock_never_goes_back() -> None:
    clock = VirtualClock(100)
    with pytest.raises(ValueError, match="cannot go back from 100 to 99"):
        await clock.advance_to(99)


async def test_only_one_may_advance_it() -> None:
    clock = VirtualClock()
    clock.alarm(lambda: None).set(10)
    first = asyncio.ensure_future(clock.advance(10))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already advancing"):
        await clock.advance(10)
    await first


async def test_a_chain_of_wake_ups_runs_to_its_end_however_long() -> None:
    clock = VirtualClock()
    turns = 0

    async def walk() -> None:
        nonlocal turns
        for _ in range(1_000):
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(walk())
        await clock.run_ready()
        assert turns == 1_000


async def test_it_stops_at_the_next_alarm() -> None:
    clock = VirtualClock()
    rung: list[str] = []
    for name, when_ns in (("a", 10), ("b", 10), ("c", 20)):
        clock.alarm(partial(rung.append, name)).set(when_ns)
    await clock.run_ready()
    await clock.advance_to_alarm(30)
    assert (rung, clock.now_ns()) == (["a", "b"], 10)
    await clock.advance_to_alarm(15)
    assert (rung, clock.now_ns()) == (["a", "b"], 15)
    await clock.advance_to_alarm(20)
    assert (rung, clock.now_ns()) == (["a", "b", "c"], 20)


async def test_a_chain_of_callbacks_without_a_task_runs_to_its_end() -> None:
    clock = VirtualClock()
    turns: list[int] = []

    def go_on() -> None:
        turns.append(len(turns))
        if len(turns) < 1_000:
            asyncio.get_running_loop().call_soon(go_on)

    go_on()
    await clock.run_ready()
    assert len(turns) == 1_000


async def test_a_task_may_run_what_is_ready_while_time_is_advanced() -> None:
    clock = VirtualClock()
    events: list[str] = []

    async def look() -> None:
        await clock.sleep(10)
        other = asyncio.ensure_future(walk())
        await clock.run_ready()
        assert other.done()
        events.append("looked")

    async def walk() -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    looking = asyncio.ensure_future(look())
    await clock.advance(20)
    assert looking.done()
    assert events == ["looked"]


async def test_a_task_that_waits_for_the_outside_is_not_ready() -> None:
    clock = VirtualClock()
    waiting = asyncio.ensure_future(asyncio.Event().wait())
    await asyncio.wait_for(clock.run_ready(), 60)
    waiting.cancel()


async def test_a_task_that_never_waits_is_detected() -> None:
    clock = VirtualClock()

    async def restless() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    task = asyncio.ensure_future(restless())
    with pytest.raises(RuntimeError, match="still ready after 100000 iterations"):
        await clock.run_ready()
    task.cancel()
