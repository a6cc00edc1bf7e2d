import asyncio
from array import array

import pytest

from wheelsched.aio import AsyncWheel
from wheelsched.errors import WheelClosed
from wheelsched.testing import VirtualClock

SECOND_NS = 1_000_000_000
TICK_NS = 1 << 20


class Consumer:
    """A task that takes one batch each time the test allows it."""

    def __init__(self, wheel: AsyncWheel[object], limit: int = 1024) -> None:
        self.batches: list[list[object]] = []
        self.let = asyncio.Semaphore(0)
        self.task = asyncio.ensure_future(self._consume(wheel, limit))

    async def _consume(self, wheel: AsyncWheel[object], limit: int) -> None:
        async for batch in wheel.batches(limit):
            self.batches.append(batch)
            await self.let.acquire()


async def test_items_come_in_order_and_at_their_time(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    came: list[tuple[object, int]] = []

    async def consume() -> None:
        async for batch in wheel.batches():
            came.extend((item, clock.now_ns()) for item in batch)

    consumer = asyncio.ensure_future(consume())
    start_ns = clock.now_ns()
    for item, delay_s in (("c", 3), ("a", 1), ("b", 2)):
        wheel.add_later(delay_s, item)
    await clock.advance(10 * SECOND_NS)
    assert [item for item, _ in came] == ["a", "b", "c"]
    for second, (_, came_ns) in enumerate(came, 1):
        assert 0 <= came_ns - start_ns - second * SECOND_NS < TICK_NS
    wheel.close()
    await consumer


async def test_a_due_item_waits_in_the_wheel_for_a_consumer(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    for number in range(5):
        wheel.add(clock.now_ns() + number, number)
    await clock.advance(SECOND_NS)
    assert len(wheel) == 5
    assert wheel.stats().items.timers == 5
    consumer = Consumer(wheel)
    await clock.run_ready()
    assert consumer.batches == [[0, 1, 2, 3, 4]]


async def test_a_slow_consumer_is_given_no_more_than_it_takes(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    for number in range(10):
        wheel.add_later(1, number)
    consumer = Consumer(wheel, limit=4)
    await clock.advance(60 * SECOND_NS)
    assert consumer.batches == [[0, 1, 2, 3]]
    assert len(wheel) == 6
    consumer.let.release()
    await clock.run_ready()
    assert consumer.batches[1:] == [[4, 5, 6, 7]]
    consumer.let.release()
    await clock.run_ready()
    assert consumer.batches[2:] == [[8, 9]]


async def test_a_slow_consumer_holds_up_no_callback_and_no_alarm_rings_for_it(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    called_ns: list[int] = []
    wheel.add_later(1, "taken")
    consumer = Consumer(wheel)
    await clock.advance(2 * SECOND_NS)
    assert consumer.batches == [["taken"]]
    for number in range(1_000):
        wheel.add_later(1, number)
    assert clock.next_alarm_ns() is None
    when_ns = clock.now_ns() + 2 * SECOND_NS
    wheel.call_at(when_ns, lambda: called_ns.append(clock.now_ns()))
    wakeups = wheel.stats().wakeups
    await clock.advance(5 * SECOND_NS)
    assert len(called_ns) == 1
    assert 0 <= called_ns[0] - when_ns < TICK_NS
    assert wheel.stats().wakeups - wakeups < 20
    assert len(wheel) == 1_000


async def test_a_consumer_that_awaits_nothing_leaves_the_loop_its_turns(
    wheel: AsyncWheel[object],
) -> None:
    turns = 0
    taken = 0

    def count_turns() -> None:
        nonlocal turns
        turns += 1
        if taken < 50:
            asyncio.get_running_loop().call_soon(count_turns)

    count_turns()
    for number in range(50):
        wheel.add(0, number)
    async for batch in wheel.batches(limit=1):
        taken += len(batch)
        if taken == 50:
            break
    assert turns >= 50


async def test_an_overdue_item_can_still_be_cancelled_and_rescheduled(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    cancelled = wheel.add_later(1, "cancelled")
    moved = wheel.add_later(1, "moved")
    wheel.add_later(1, "kept")
    await clock.advance(2 * SECOND_NS)
    assert wheel.cancel(cancelled)
    assert not wheel.cancel(cancelled)
    assert wheel.reschedule(moved, clock.now_ns() + SECOND_NS)
    consumer = Consumer(wheel)
    consumer.let.release()
    await clock.run_ready()
    assert consumer.batches == [["kept"]]
    await clock.advance(2 * SECOND_NS)
    assert consumer.batches == [["kept"], ["moved"]]
    assert not wheel.reschedule(moved, clock.now_ns() + SECOND_NS)


async def test_an_item_moved_earlier_wakes_the_consumer_earlier(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    handle = wheel.add_later(3_600, "moved")
    consumer = Consumer(wheel)
    await clock.run_ready()
    wheel.reschedule(handle, clock.now_ns() + SECOND_NS)
    await clock.advance(SECOND_NS + TICK_NS)
    assert consumer.batches == [["moved"]]


async def test_many_items_in_one_call(clock: VirtualClock, wheel: AsyncWheel[object]) -> None:
    consumer = Consumer(wheel)
    await clock.run_ready()
    whens_ns = array("q", [clock.now_ns() + SECOND_NS] * 3)
    handles = wheel.add_many(whens_ns, ["a", "b", "c"])
    assert wheel.cancel(handles[1])
    await clock.advance(2 * SECOND_NS)
    assert consumer.batches == [["a", "c"]]


async def test_consumers_share_the_items(clock: VirtualClock, wheel: AsyncWheel[object]) -> None:
    consumers = [Consumer(wheel, limit=2) for _ in range(3)]
    for number in range(5):
        wheel.add_later(1, number)
    await clock.advance(2 * SECOND_NS)
    assert [consumer.batches for consumer in consumers] == [[[0, 1]], [[2, 3]], [[4]]]


async def test_a_cancelled_consumer_takes_nothing_with_it(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    wheel.add_later(1, "item")
    gone = Consumer(wheel)
    await clock.run_ready()
    gone.task.cancel()
    await clock.advance(2 * SECOND_NS)
    assert gone.task.cancelled()
    assert gone.batches == []
    consumer = Consumer(wheel)
    await clock.run_ready()
    assert consumer.batches == [["item"]]


async def test_a_consumer_may_stop_and_another_go_on(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    for number in range(4):
        wheel.add_later(1, number)
    await clock.advance(2 * SECOND_NS)
    taken: list[object] = []
    for _ in range(2):
        async for batch in wheel.batches(limit=2):
            taken.extend(batch)
            break
    assert taken == [0, 1, 2, 3]


@pytest.mark.parametrize("waiting", [True, False])
async def test_closing_ends_the_iteration(
    clock: VirtualClock, wheel: AsyncWheel[object], waiting: bool
) -> None:
    consumer = Consumer(wheel)
    if not waiting:
        wheel.add(0, "taken")
    when_ns = clock.now_ns() + 10 * SECOND_NS
    wheel.add(when_ns, "pending")
    await clock.run_ready()
    assert wheel.close().items == [(when_ns, "pending")]
    consumer.let.release()
    await asyncio.wait_for(consumer.task, 30)


async def test_a_closed_wheel_has_no_batches(wheel: AsyncWheel[object]) -> None:
    wheel.close()
    with pytest.raises(WheelClosed):
        wheel.batches()


async def test_a_batch_has_at_least_one_item(wheel: AsyncWheel[object]) -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
        wheel.batches(limit=0)


async def test_a_timeout_around_one_step_does_not_end_the_iteration(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    batches = wheel.batches()
    waiting = asyncio.ensure_future(anext(batches))
    await clock.run_ready()
    waiting.cancel()
    await clock.run_ready()
    assert waiting.cancelled()
    wheel.add(clock.now_ns(), "still there")
    assert await anext(batches) == ["still there"]


async def test_a_limit_that_is_not_a_number_is_refused_at_once(wheel: AsyncWheel[object]) -> None:
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        wheel.batches(1.5)  # type: ignore[arg-type] # on purpose
