import asyncio
import gc
import weakref
from contextvars import Context, ContextVar, copy_context
from itertools import pairwise
from typing import Any

import pytest

from wheelsched.aio import AsyncWheel, Timer
from wheelsched.clock import SystemClock
from wheelsched.errors import DeadlineOutOfRange
from wheelsched.testing import VirtualClock

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
TICK_NS = 1 << 20


async def test_callbacks_come_in_order_each_with_its_arguments(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    called: list[tuple[str, int]] = []
    for name, delay_s in (("c", 3), ("a", 0.001), ("d", 3_600), ("b", 2.5)):
        wheel.call_later(delay_s, lambda *args: called.append(args), name, 7)
    await clock.advance(3_601 * SECOND_NS)
    assert called == [("a", 7), ("b", 7), ("c", 7), ("d", 7)]


@pytest.mark.parametrize("delay_ns", [1, TICK_NS - 1, TICK_NS, TICK_NS + 1, 86_400 * SECOND_NS])
async def test_a_callback_comes_at_the_end_of_its_tick(
    clock: VirtualClock, wheel: AsyncWheel[object], delay_ns: int
) -> None:
    called_ns: list[int] = []
    when_ns = clock.now_ns() + delay_ns
    wheel.call_at(when_ns, lambda: called_ns.append(clock.now_ns()))
    await clock.advance(delay_ns + TICK_NS)
    assert len(called_ns) == 1
    assert when_ns <= called_ns[0] < when_ns + TICK_NS


@pytest.mark.parametrize("delay_s", [0, -1, -0.001])
async def test_a_due_timer_comes_in_the_next_iteration(
    clock: VirtualClock, wheel: AsyncWheel[object], delay_s: float
) -> None:
    called: list[int] = []
    wheel.call_later(delay_s, called.append, 1)
    wheel.call_at(0, called.append, 2)
    assert called == []
    await clock.run_ready()
    assert called == [1, 2]


async def test_an_earlier_timer_moves_the_alarm_and_a_later_one_does_not(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    def alarm_s() -> float:
        alarm_ns = clock.next_alarm_ns()
        assert alarm_ns is not None
        return round((alarm_ns - clock.now_ns()) / SECOND_NS, 2)

    wheel.call_later(0.2, print)
    assert alarm_s() == 0.2
    wheel.call_later(0.1, print)
    assert alarm_s() == 0.1
    wheel.call_later(0.15, print)
    assert alarm_s() == 0.1


async def test_a_cancelled_callback_never_comes(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    called: list[int] = []
    timer = wheel.call_later(1, called.append, 1)
    assert len(wheel) == 1
    assert timer.cancel()
    assert not timer.cancel()
    assert len(wheel) == 0
    await clock.advance(2 * SECOND_NS)
    assert called == []


async def test_cancelling_lets_go_of_the_callback(wheel: AsyncWheel[object]) -> None:
    timer = wheel.call_later(1, print, "large")
    timer.cancel()
    assert timer.callback is None
    assert timer.args == ()


async def test_too_late_to_cancel_or_reschedule(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    timer = wheel.call_later(1, lambda: None)
    await clock.advance(2 * SECOND_NS)
    assert not timer.cancel()
    assert not timer.reschedule(clock.now_ns() + SECOND_NS)
    assert not timer.reschedule_later(1)


@pytest.mark.parametrize("delay_s", [0.5, 5])
async def test_a_rescheduled_callback_comes_once_at_its_new_time(
    clock: VirtualClock, wheel: AsyncWheel[object], delay_s: float
) -> None:
    called_ns: list[int] = []
    timer = wheel.call_later(1, lambda: called_ns.append(clock.now_ns()))
    assert timer.reschedule_later(delay_s)
    when_ns = timer.when_ns
    assert when_ns == clock.now_ns() + delay_s * SECOND_NS
    await clock.advance(10 * SECOND_NS)
    assert len(called_ns) == 1
    assert when_ns <= called_ns[0] < when_ns + TICK_NS


async def test_a_callback_cancels_the_next_one_of_its_tick(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    called: list[str] = []
    lengths: list[int] = []

    def first() -> None:
        assert second.cancel()
        lengths.append(len(wheel))

    when_ns = clock.now_ns() + SECOND_NS
    wheel.call_at(when_ns, first)
    second = wheel.call_at(when_ns, called.append, "second")
    wheel.call_at(when_ns, called.append, "third")
    await clock.advance(2 * SECOND_NS)
    assert called == ["third"]
    assert lengths == [1]


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_callback_reschedules_the_next_one_of_its_tick(
    clock: VirtualClock, wheel: AsyncWheel[object], cancel: bool
) -> None:
    called_ns: list[int] = []
    lengths: list[int] = []

    def first() -> None:
        assert second.reschedule(when_ns + SECOND_NS)
        assert second.reschedule(when_ns + 2 * SECOND_NS)
        lengths.append(len(wheel))
        if cancel:
            assert second.cancel()
            lengths.append(len(wheel))

    when_ns = clock.now_ns() + SECOND_NS
    wheel.call_at(when_ns, first)
    second = wheel.call_at(when_ns, lambda: called_ns.append(clock.now_ns()))
    await clock.advance(5 * SECOND_NS)
    if cancel:
        assert called_ns == []
        assert lengths == [1, 0]
    else:
        assert len(called_ns) == 1
        assert called_ns[0] >= when_ns + 2 * SECOND_NS
        assert lengths == [1]


async def test_a_callback_reschedules_the_next_one_to_now(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    called: list[str] = []
    when_ns = clock.now_ns() + SECOND_NS

    def first() -> None:
        assert second.reschedule(0)

    wheel.call_at(when_ns, first)
    second = wheel.call_at(when_ns, called.append, "second")
    wheel.call_at(when_ns, called.append, "third")
    await clock.advance(2 * SECOND_NS)
    assert called == ["third", "second"]


async def test_a_callback_adds_others(clock: VirtualClock, wheel: AsyncWheel[object]) -> None:
    called_ns: list[int] = []

    def again(left: int) -> None:
        called_ns.append(clock.now_ns())
        if left:
            wheel.call_later(0.1, again, left - 1)

    wheel.call_later(0.1, again, 9)
    await clock.advance(2 * SECOND_NS)
    assert len(called_ns) == 10
    steps_ns = [later - earlier for earlier, later in pairwise(called_ns)]
    assert min(steps_ns) >= 100 * MILLISECOND_NS


async def test_a_callback_that_reschedules_itself_starves_no_other(
    wheel: AsyncWheel[object],
) -> None:
    rounds = 0

    def restless() -> None:
        nonlocal rounds
        rounds += 1
        wheel.call_at(0, restless)

    wheel.call_at(0, restless)
    for _ in range(100):
        await asyncio.sleep(0)
    assert 1 <= rounds <= 200


async def test_a_crowd_is_called_in_portions_with_the_loop_in_between(clock: VirtualClock) -> None:
    called: list[int] = []
    seen: list[int] = []

    def look_every_turn() -> None:
        seen.append(len(called))
        if len(called) < 10:
            asyncio.get_running_loop().call_soon(look_every_turn)

    async with AsyncWheel[object](clock, portion=3) as wheel:
        when_ns = clock.now_ns() + SECOND_NS
        wheel.call_at(when_ns, look_every_turn)
        for number in range(10):
            wheel.call_at(when_ns, called.append, number)
        await clock.advance(2 * SECOND_NS)
    assert called == list(range(10))
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) <= 3


async def test_an_exception_is_reported_and_stops_nothing(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    reports: list[dict[str, Any]] = []
    called: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    failure = ValueError("no")

    def fail() -> None:
        raise failure

    def fail_harder() -> None:
        raise asyncio.CancelledError

    failed = wheel.call_later(1, fail)
    wheel.call_later(1, fail_harder)
    wheel.call_later(1, called.append, "next")
    await clock.advance(2 * SECOND_NS)
    assert called == ["next"]
    assert [type(report["exception"]) for report in reports] == [ValueError, asyncio.CancelledError]
    assert reports[0]["exception"] is failure
    assert reports[0]["timer"] is failed
    assert "test_an_exception_is_reported" in reports[0]["message"]
    assert wheel.stats().failed_callbacks == 2


async def test_the_report_shows_the_timer(wheel: AsyncWheel[object]) -> None:
    assert repr(wheel.call_at(5, print)) == "<Timer <built-in function print> at 5 ns>"


@pytest.mark.parametrize("virtual", [True, False])
@pytest.mark.parametrize("timerfd", [True, False])
async def test_callbacks_run_in_the_context_the_wheel_was_made_in(
    virtual: bool, timerfd: bool
) -> None:
    request: ContextVar[str] = ContextVar("request")
    request.set("when the wheel was made")
    seen: list[str] = []
    came = asyncio.Event()

    def look() -> None:
        seen.append(request.get())
        came.set()

    clock = VirtualClock() if virtual else SystemClock(timerfd=timerfd)
    async with AsyncWheel[object](clock) as wheel:
        request.set("when the timer was added")
        wheel.call_at(0, look)
        await asyncio.wait_for(came.wait(), 30)
    assert seen == ["when the wheel was made"]


async def test_a_callback_runs_in_the_context_it_is_given(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    request: ContextVar[str] = ContextVar("request")
    request.set("when the timer was added")
    seen: list[str] = []
    wheel.call_later(1, lambda: seen.append(request.get()), context=copy_context())
    wheel.call_later(1, lambda: seen.append(request.get("none")), context=Context())
    request.set("later")
    await clock.advance(2 * SECOND_NS)
    assert seen == ["when the timer was added", "none"]


@pytest.mark.parametrize("when_ns", [1.5, "soon", None])
async def test_an_instant_is_an_integer(wheel: AsyncWheel[object], when_ns: Any) -> None:
    with pytest.raises(TypeError):
        wheel.call_at(when_ns, print)
    assert len(wheel) == 0


async def test_a_portion_has_at_least_one(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="portion must be between 1 and 1048576, not 0"):
        AsyncWheel[object](clock, portion=0)


@pytest.mark.parametrize("callback", [None, "print"])
async def test_a_callback_is_callable(wheel: AsyncWheel[object], callback: Any) -> None:
    with pytest.raises(TypeError, match="a callback must be callable, not"):
        wheel.call_later(1, callback)
    assert len(wheel) == 0


async def test_an_instant_beyond_the_wheels_reach_is_refused(wheel: AsyncWheel[object]) -> None:
    for when_ns in (-1, 1 << 63, 1 << 100):
        with pytest.raises(DeadlineOutOfRange):
            wheel.call_at(when_ns, print)
    timer = wheel.call_later(1, print)
    with pytest.raises(DeadlineOutOfRange):
        timer.reschedule(-1)
    assert len(wheel) == 1


async def test_a_timer_without_a_wheel_cannot_be() -> None:
    new: Any = Timer.__new__
    for arguments in ((), (None, print, (), None)):
        with pytest.raises(TypeError):
            new(Timer, *arguments)


async def test_a_called_callback_is_released(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    class Request:
        pass

    request = Request()
    gone = weakref.ref(request)
    wheel.call_later(1, lambda _: None, request)
    del request
    await clock.advance(2 * SECOND_NS)
    assert gone() is None


async def test_a_timer_in_a_cycle_is_collected(wheel: AsyncWheel[object]) -> None:
    class Connection:
        timer: Timer

        def expire(self) -> None:
            pass

    connection = Connection()
    connection.timer = wheel.call_later(1, connection.expire)
    gone = weakref.ref(connection)
    wheel.close()
    del connection
    gc.collect()
    assert gone() is None
