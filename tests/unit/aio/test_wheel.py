import asyncio
import gc
import logging
import threading
from array import array
from collections.abc import Callable

import pytest
import uvloop

from wheelsched.aio import AsyncWheel, Timer
from wheelsched.clock import SystemClock
from wheelsched.errors import WheelClosed, WrongLoop
from wheelsched.testing import VirtualClock

GENEROUS_S = 30
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


@pytest.mark.parametrize("timerfd", [True, False], ids=["timerfd", "call_at"])
@pytest.mark.parametrize("spin_us", [0, 100])
async def test_on_the_real_clock_nothing_is_early_and_nothing_is_lost(
    timerfd: bool, spin_us: int
) -> None:
    clock = SystemClock(timerfd=timerfd, spin_us=spin_us)
    early: list[int] = []
    left = 600
    all_came = asyncio.Event()

    def came(when_ns: int) -> None:
        nonlocal left
        left -= 1
        if clock.now_ns() < when_ns:
            early.append(when_ns)
        if not left:
            all_came.set()

    async def consume() -> None:
        async for batch in wheel.batches():
            for when_ns in batch:
                came(when_ns)

    async with AsyncWheel[int](clock) as wheel:
        consumer = asyncio.ensure_future(consume())
        start_ns = clock.now_ns()
        for step in range(300):
            when_ns = start_ns + 137_003 * step
            wheel.call_at(when_ns, came, when_ns)
            wheel.add(when_ns, when_ns)
        await asyncio.wait_for(all_came.wait(), GENEROUS_S)
    await asyncio.wait_for(consumer, GENEROUS_S)
    assert early == []
    assert left == 0


@pytest.mark.parametrize("timerfd", [True, False], ids=["timerfd", "call_at"])
async def test_the_real_alarm_follows_an_earlier_timer(timerfd: bool) -> None:
    came = asyncio.Event()
    async with AsyncWheel[object](SystemClock(timerfd=timerfd)) as wheel:
        late = wheel.call_later(3_600, print)
        wheel.call_later(0.001, came.set)
        await asyncio.wait_for(came.wait(), GENEROUS_S)
        came.clear()
        late.reschedule_later(0)
        wheel.call_later(0.002, came.set)
        await asyncio.wait_for(came.wait(), GENEROUS_S)


async def test_without_a_clock_it_takes_the_systems() -> None:
    async with AsyncWheel[object]() as wheel:
        before_ns = SystemClock().now_ns()
        assert before_ns <= wheel.now_ns() <= SystemClock().now_ns()


async def test_exact_order_inside_a_tick(clock: VirtualClock) -> None:
    called: list[int] = []
    async with AsyncWheel[object](clock, exact_order=True, tick_shift=24) as wheel:
        for delay_ns in (3_000, 1_000, 2_000):
            wheel.call_at(clock.now_ns() + delay_ns, called.append, delay_ns)
        await clock.advance(SECOND_NS)
    assert called == [1_000, 2_000, 3_000]


async def test_close_hands_back_everything_in_order(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    for delay_s in (300, 86_400 * 30, 0.5):
        wheel.call_later(delay_s, print, delay_s)
        wheel.add_later(delay_s, delay_s)
    wheel.call_later(7, print).cancel()
    assert len(wheel) == 6
    pending = wheel.close()
    assert [timer.args for timer in pending.callbacks] == [(0.5,), (300,), (86_400 * 30,)]
    assert [timer.callback for timer in pending.callbacks] == [print, print, print]
    assert pending.callbacks[0].when_ns == clock.now_ns() + 500 * MILLISECOND_NS
    assert [item for _, item in pending.items] == [0.5, 300, 86_400 * 30]
    assert pending.items[1][0] == clock.now_ns() + 300 * SECOND_NS
    assert len(pending) == 6
    assert not wheel.close()


async def test_closing_takes_no_longer_for_timers_of_the_next_century(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    century_ns = 100 * 365 * 86_400 * SECOND_NS
    for number in range(10_000):
        wheel.add(clock.now_ns() + century_ns + number, number)
    assert [item for _, item in wheel.close().items] == list(range(10_000))


async def test_close_inside_a_callback_hands_back_the_rest_of_its_portion(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    called: list[str] = []
    closed: list[list[Timer]] = []

    def close() -> None:
        cancelled.cancel()
        moved.reschedule(when_ns + SECOND_NS)
        closed.append(wheel.close().callbacks)

    when_ns = clock.now_ns() + SECOND_NS
    wheel.call_at(when_ns, close)
    cancelled = wheel.call_at(when_ns, called.append, "cancelled")
    moved = wheel.call_at(when_ns, called.append, "moved")
    rest = wheel.call_at(when_ns, called.append, "rest")
    await clock.advance(5 * SECOND_NS)
    assert called == []
    assert closed == [[rest, moved]]


async def test_every_use_after_close_says_so(wheel: AsyncWheel[object]) -> None:
    timer = wheel.call_later(1, print)
    handle = wheel.add_later(1, "item")
    wheel.close()
    assert wheel.closed
    assert len(wheel) == 0
    uses: list[Callable[[], object]] = [
        lambda: wheel.call_later(1, print),
        lambda: wheel.call_at(0, print),
        lambda: wheel.add(0, "item"),
        lambda: wheel.add_later(0, "item"),
        lambda: wheel.add_many(array("q", [0]), ["item"]),
        lambda: wheel.cancel(handle),
        lambda: wheel.reschedule(handle, 0),
        wheel.batches,
        lambda: timer.reschedule(0),
        lambda: timer.reschedule_later(0),
        wheel.stats,
    ]
    for use in uses:
        with pytest.raises(WheelClosed):
            use()


async def test_cancelling_after_close_is_harmless(wheel: AsyncWheel[object]) -> None:
    timer = wheel.call_later(1, print, "kept for whoever closed")
    wheel.close()
    assert not timer.cancel()
    assert timer.args == ("kept for whoever closed",)


async def test_a_closed_wheel_calls_nothing(clock: VirtualClock, wheel: AsyncWheel[object]) -> None:
    called: list[int] = []
    wheel.call_later(1, called.append, 1)
    wheel.close()
    await clock.advance(2 * SECOND_NS)
    assert called == []
    assert clock.next_alarm_ns() is None


async def test_leaving_the_block_logs_the_pending_timers(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncWheel[str](clock) as wheel:
        wheel.call_later(1, print)
        wheel.add_later(1, "item")
        wheel.add_later(2, "item")
    assert caplog.messages == ["wheel.closed with 1 callbacks and 2 items pending"]
    assert caplog.records[0].levelno == logging.WARNING
    assert wheel.closed


async def test_leaving_the_block_says_nothing_when_nothing_was_pending(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncWheel[str](clock) as wheel:
        wheel.call_later(1, print).cancel()
    async with AsyncWheel[str](clock) as wheel:
        when_ns = clock.now_ns() + SECOND_NS
        wheel.add(when_ns, "handed back")
        assert wheel.close().items == [(when_ns, "handed back")]
    assert caplog.messages == []


async def test_stats_count_both_sides(clock: VirtualClock, wheel: AsyncWheel[object]) -> None:
    wheel.call_later(1, lambda: None)
    wheel.call_later(60, lambda: None)
    wheel.add_later(60, "item")
    await clock.advance(2 * SECOND_NS)
    stats = wheel.stats()
    assert stats.callbacks.timers == 1
    assert stats.callbacks.fired == 1
    assert stats.items.timers == 1
    assert stats.wakeups >= 1
    assert stats.failed_callbacks == 0


async def test_another_thread_is_turned_away(wheel: AsyncWheel[object]) -> None:
    timer = wheel.call_later(60, print)
    refused: list[int] = []
    thread = threading.Thread(target=lambda: refused.append(refusals(wheel, timer)))
    thread.start()
    thread.join()
    assert refused == [8]
    assert len(wheel) == 1


async def test_another_loop_is_turned_away(wheel: AsyncWheel[object]) -> None:
    timer = wheel.call_later(60, print)

    async def elsewhere() -> int:
        return refusals(wheel, timer)

    refused: list[int] = []
    thread = threading.Thread(target=lambda: refused.append(asyncio.run(elsewhere())))
    thread.start()
    thread.join()
    assert refused == [8]
    assert len(wheel) == 1


def refusals(wheel: AsyncWheel[object], timer: Timer) -> int:
    """Call every method of the wheel, and count those that raise."""
    uses: list[Callable[[], object]] = [
        lambda: wheel.call_later(1, print),
        lambda: wheel.add(0, "item"),
        lambda: wheel.cancel(0),
        lambda: wheel.reschedule(0, 0),
        wheel.batches,
        wheel.close,
        timer.cancel,
        lambda: timer.reschedule(0),
    ]
    refused = 0
    for use in uses:
        try:
            use()
        except WrongLoop as error:
            refused += "call_soon_threadsafe" in str(error)
    return refused


def test_without_a_running_loop_there_is_no_wheel(clock: VirtualClock) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncWheel[object](clock)


@pytest.mark.parametrize(
    "new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_the_loop_and_loses_nothing(
    new_loop: Callable[[], asyncio.AbstractEventLoop], interrupt: type[BaseException]
) -> None:
    called: list[str] = []
    came = asyncio.Event()

    def raise_interrupt() -> None:
        raise interrupt

    async def serve() -> None:
        async with AsyncWheel[object]() as wheel:
            wheel.call_at(0, called.append, "before")
            wheel.call_at(0, raise_interrupt)
            wheel.call_at(0, called.append, "after")
            wheel.call_at(0, came.set)
            await asyncio.wait_for(came.wait(), GENEROUS_S)

    loop = new_loop()
    try:
        service = loop.create_task(serve())
        with pytest.raises(interrupt):
            loop.run_until_complete(service)
        loop.run_until_complete(service)
        assert called == ["before", "after"]
    finally:
        loop.close()


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), 1e10])
async def test_a_delay_that_never_ends_is_refused(wheel: AsyncWheel[object], delay: float) -> None:
    with pytest.raises(ValueError, match=r"delay_s must be below 9,000,000,000 seconds"):
        wheel.call_later(delay, print)


async def test_a_delay_that_is_not_a_number_is_refused(wheel: AsyncWheel[object]) -> None:
    with pytest.raises(TypeError, match="delay_s must be a number of seconds, not '1'"):
        wheel.call_later("1", print)  # type: ignore[arg-type] # on purpose


async def test_pending_callbacks_come_in_order_also_from_within_a_callback(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    pending: list[int] = []
    now_ns = clock.now_ns()

    def close() -> None:
        pending.extend(timer.when_ns - now_ns for timer in wheel.close().callbacks)

    wheel.call_at(now_ns, close)
    for when_ns in (900, 500, 100):
        wheel.call_at(now_ns + when_ns, print)
    await clock.advance(SECOND_NS)
    assert pending == [100, 500, 900]


def test_a_wheel_whose_loop_has_ended_can_still_be_closed() -> None:
    async def make() -> AsyncWheel[str]:
        wheel = AsyncWheel[str]()
        wheel.add_later(3600, "an item")
        return wheel

    wheel = asyncio.run(make())
    assert [item for _, item in wheel.close().items] == ["an item"]


def test_an_unclosed_wheel_gives_its_descriptor_back_and_says_so() -> None:
    async def forget() -> None:
        AsyncWheel[str]().add_later(3600, "an item")

    asyncio.run(forget())
    with pytest.warns(ResourceWarning, match="unclosed alarm"):
        gc.collect()
