"""`wheel.timeout` behaves like `asyncio.timeout`, by the wheel's clock."""

import asyncio
import contextlib

import pytest

from wheelsched.aio import AsyncWheel
from wheelsched.errors import WheelClosed
from wheelsched.testing import VirtualClock

SECOND_NS = 1_000_000_000
TICK_NS = 1 << 20


async def forever() -> None:
    await asyncio.Event().wait()


async def limited(wheel: AsyncWheel[object], delay_s: float | None) -> None:
    async with wheel.timeout(delay_s):
        await forever()


async def test_a_block_that_takes_too_long_is_cancelled_with_timeout_error(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    task = asyncio.create_task(limited(wheel, 5))
    await clock.advance(5 * SECOND_NS - 1)
    assert not task.done()
    await clock.advance(2 * TICK_NS)
    with pytest.raises(TimeoutError) as raised:
        await task
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert task.cancelling() == 0
    assert len(wheel) == 0


async def test_a_block_that_ends_in_time_leaves_nothing_in_the_wheel(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    async with wheel.timeout(5) as timeout:
        assert len(wheel) == 1
        assert timeout.when_ns == clock.now_ns() + 5 * SECOND_NS
    assert len(wheel) == 0
    await clock.advance(10 * SECOND_NS)
    assert not timeout.expired()


@pytest.mark.parametrize("delay_s", [0, -1, 0.0])
async def test_an_expired_timeout_cancels_at_the_first_wait(
    clock: VirtualClock, wheel: AsyncWheel[object], delay_s: float
) -> None:
    reached = False

    async def work() -> None:
        nonlocal reached
        async with wheel.timeout(delay_s):
            reached = True
            await forever()

    task = asyncio.create_task(work())
    await clock.run_ready()
    with pytest.raises(TimeoutError):
        await task
    assert reached


async def test_none_means_no_limit(clock: VirtualClock, wheel: AsyncWheel[object]) -> None:
    task = asyncio.create_task(limited(wheel, None))
    await clock.advance(86_400 * SECOND_NS)
    assert not task.done()
    assert len(wheel) == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_instant_may_be_given_instead_of_a_delay(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    when_ns = clock.now_ns() + SECOND_NS

    async def work() -> int:
        with pytest.raises(TimeoutError):
            async with wheel.timeout_at(when_ns):
                await forever()
        return clock.now_ns()

    task = asyncio.create_task(work())
    await clock.advance(2 * SECOND_NS)
    assert when_ns <= await task < when_ns + 2 * TICK_NS


async def test_an_error_of_the_block_comes_out_as_it_is(wheel: AsyncWheel[object]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with wheel.timeout(5):
            raise ZeroDivisionError
    assert len(wheel) == 0


async def test_a_cancellation_from_outside_stays_one(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    task = asyncio.create_task(limited(wheel, 5))
    await clock.run_ready()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(wheel) == 0


async def test_a_cancellation_from_outside_wins_over_a_timeout_of_the_same_moment(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    task = asyncio.create_task(limited(wheel, 5))
    await clock.run_ready()
    wheel.call_later(5, task.cancel)  # after the timer of the block, in the same tick
    await clock.advance(6 * SECOND_NS)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_the_inner_of_two_timeouts_leaves_the_outer_alone(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            async with wheel.timeout(5):
                try:
                    async with wheel.timeout(1):
                        await forever()
                except TimeoutError:
                    told.append("inner")
                await forever()
        except TimeoutError:
            told.append("outer")

    task = asyncio.create_task(work())
    await clock.advance(2 * SECOND_NS)
    assert told == ["inner"]
    await clock.advance(4 * SECOND_NS)
    await task
    assert told == ["inner", "outer"]
    assert task.cancelling() == 0


async def test_the_outer_of_two_timeouts_does_not_expire_the_inner(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    seen: list[object] = []

    async def work() -> None:
        async with wheel.timeout(1) as outer:
            try:
                async with wheel.timeout(5) as inner:
                    await forever()
            except BaseException as error:
                seen.append(type(error))
                raise
            finally:
                seen.extend((outer.expired(), inner.expired()))

    task = asyncio.create_task(work())
    await clock.advance(2 * SECOND_NS)
    with pytest.raises(TimeoutError):
        await task
    assert seen == [asyncio.CancelledError, True, False]


async def test_it_nests_with_asyncio_s_own(wheel: AsyncWheel[object]) -> None:
    real: AsyncWheel[object] = AsyncWheel()
    async with asyncio.timeout(60):
        with pytest.raises(TimeoutError):
            async with real.timeout(0.01):
                await forever()
    with pytest.raises(TimeoutError):
        async with real.timeout(60), asyncio.timeout(0.01):
            await forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert len(real) == 0
    real.close()


async def test_a_timeout_is_moved_later_earlier_and_away(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    start_ns = clock.now_ns()

    elapsed_ns = 0

    async def work() -> None:
        nonlocal elapsed_ns
        async with wheel.timeout(1) as timeout:
            timeout.reschedule(None)
            await clock.sleep(10 * SECOND_NS)
            timeout.reschedule_later(5)
            await clock.sleep(4 * SECOND_NS)
            timeout.reschedule(clock.now_ns() + SECOND_NS // 2)
            assert len(wheel) == 1
            try:
                await forever()
            finally:
                elapsed_ns = clock.now_ns() - start_ns
                assert timeout.expired()

    task = asyncio.create_task(work())
    await clock.advance(20 * SECOND_NS)
    with pytest.raises(TimeoutError):
        await task
    assert 14.5 * SECOND_NS <= elapsed_ns < 14.5 * SECOND_NS + 2 * TICK_NS


async def test_a_timeout_that_rang_in_the_same_turn_can_still_be_moved(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    async def work() -> str:
        async with wheel.timeout(1) as timeout:
            wheel.call_later(1, timeout.reschedule_later, 60)  # next in the same tick
            await clock.sleep(10 * SECOND_NS)
        return "ended"

    task = asyncio.create_task(work())
    await clock.advance(20 * SECOND_NS)
    assert await task == "ended"


async def test_a_timeout_is_entered_once_and_moved_only_inside(wheel: AsyncWheel[object]) -> None:
    timeout = wheel.timeout(5)
    with pytest.raises(RuntimeError, match="not been entered"):
        timeout.reschedule(None)
    async with timeout:
        pass
    with pytest.raises(RuntimeError, match="finished"):
        timeout.reschedule_later(1)
    with pytest.raises(RuntimeError, match="already been entered"):
        async with timeout:
            pass
    assert len(wheel) == 0


async def test_a_block_may_swallow_the_cancellation(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    async def work() -> str:
        async with wheel.timeout(1) as timeout:
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
        assert timeout.expired()
        await asyncio.sleep(0)  # is not cancelled any more
        return "went on"

    task = asyncio.create_task(work())
    await clock.advance(2 * SECOND_NS)
    assert await task == "went on"
    assert task.cancelling() == 0


async def test_a_group_of_tasks_inside_is_cancelled_with_the_block(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    children: list[asyncio.Task[None]] = []

    async def work() -> None:
        async with wheel.timeout(1), asyncio.TaskGroup() as group:
            children.extend(group.create_task(forever()) for _ in range(3))

    task = asyncio.create_task(work())
    await clock.advance(2 * SECOND_NS)
    with pytest.raises(TimeoutError):
        await task
    assert all(child.cancelled() for child in children)


async def test_a_closed_wheel_begins_no_timeout_and_ends_none(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    async with wheel.timeout(1) as timeout:
        assert len(wheel.close()) == 1
        await clock.advance(2 * SECOND_NS)
    assert not timeout.expired()
    with pytest.raises(WheelClosed):
        async with wheel.timeout(1):
            pass


@pytest.mark.proof
async def test_ten_thousand_blocks_share_one_alarm(
    clock: VirtualClock, wheel: AsyncWheel[object]
) -> None:
    tasks = [asyncio.create_task(limited(wheel, 1 + number / 1e4)) for number in range(10_000)]
    await clock.run_ready()
    assert len(wheel) == 10_000
    await clock.advance(3 * SECOND_NS)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in ended} == {TimeoutError}
