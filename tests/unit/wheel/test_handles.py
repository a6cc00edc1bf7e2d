"""Cancelling and moving timers by their handle."""

from array import array

import pytest

from wheelsched import ObjectWheel, Wheel
from wheelsched.errors import ForeignHandle

TICK = 1 << 20
BLOCK = 256 * TICK
SPAN = 1024 * BLOCK


def test_a_cancelled_timer_does_not_expire() -> None:
    wheel = Wheel()
    kept, cancelled = wheel.add(TICK, 1), wheel.add(TICK, 2)
    assert wheel.cancel(cancelled)
    assert len(wheel) == 1
    assert wheel.advance(TICK) == [1]
    assert not wheel.cancel(kept)


def test_a_stale_handle_never_hits_the_next_timer_in_its_place() -> None:
    wheel = Wheel()
    stale = wheel.add(TICK, 1)
    wheel.cancel(stale)
    taken = wheel.add(TICK, 2)
    assert stale & 0xFFFFFFFF == taken & 0xFFFFFFFF
    assert not wheel.cancel(stale)
    assert not wheel.reschedule(stale, 5 * TICK)
    assert wheel.deadline(stale) is None
    assert wheel.advance(TICK) == [2]
    assert not wheel.cancel(taken)


def test_the_entry_of_a_cancelled_timer_does_not_expire_its_successor() -> None:
    """The successor takes the same node, with an entry in the same slot."""
    wheel = Wheel()
    for key in range(100):
        handle = wheel.add(5 * TICK, key)
        if key < 99:
            wheel.cancel(handle)
    assert wheel.advance(5 * TICK) == [99]


@pytest.mark.parametrize("distance", [TICK, BLOCK, 3 * SPAN, 100 * SPAN])
@pytest.mark.parametrize("moved", [2 * TICK, BLOCK - 5, 2 * BLOCK, 5 * SPAN, 90 * SPAN])
def test_a_moved_timer_expires_at_its_new_deadline_only(distance: int, moved: int) -> None:
    wheel = Wheel()
    handle = wheel.add(distance, 7)
    assert wheel.reschedule(handle, moved)
    assert wheel.deadline(handle) == moved
    wheel.check()
    assert wheel.advance(moved - TICK) == []
    wheel.check()
    assert wheel.advance(moved + TICK) == [7]


def test_moving_later_writes_no_entry() -> None:
    wheel = Wheel()
    handle = wheel.add(TICK, 7)
    for later in range(2, 1_000):
        wheel.reschedule(handle, later * TICK)
    assert wheel.stats().entries == 1


def test_a_timer_in_the_due_slot_really_moves() -> None:
    wheel = Wheel(10 * TICK)
    late = wheel.add(TICK, 1)
    wheel.add(11 * TICK, 2)
    wheel.reschedule(late, 12 * TICK)
    assert wheel.advance(10 * TICK) == []
    assert wheel.advance(13 * TICK) == [2, 1]


def test_a_timer_that_a_limit_left_behind_really_moves() -> None:
    wheel = Wheel()
    first, second = wheel.add(TICK, 1), wheel.add(TICK, 2)
    assert wheel.advance(5 * TICK, limit=1) == [1]
    assert not wheel.cancel(first)
    assert wheel.reschedule(second, 9 * TICK)
    assert wheel.advance(8 * TICK) == []
    assert wheel.advance(9 * TICK) == [2]


def test_a_timer_moved_into_the_past_is_late() -> None:
    wheel = Wheel(10 * TICK)
    handle = wheel.add(20 * TICK, 1)
    wheel.reschedule(handle, 5 * TICK)
    assert wheel.advance(10 * TICK) == [1]


def test_batches_do_what_single_calls_do() -> None:
    wheel = Wheel()
    handles = wheel.add_many(array("q", [i * TICK for i in range(1, 11)]), array("q", range(10)))
    assert wheel.cancel_many(handles[:2]) == 2
    assert wheel.cancel_many(handles[:3]) == 1
    moved = wheel.reschedule_many(handles[1:5], array("q", [50 * TICK] * 4))
    assert moved == 2
    assert wheel.advance(20 * TICK) == [5, 6, 7, 8, 9]
    assert wheel.advance(50 * TICK) == [3, 4]
    assert wheel.cancel_many(handles) == 0


def test_a_batch_that_names_a_timer_twice() -> None:
    wheel = Wheel()
    handle = wheel.add(5 * TICK, 1)
    twice = array("q", [handle, handle])
    assert wheel.reschedule_many(twice, array("q", [50 * TICK, 20 * TICK])) == 2
    wheel.check()
    assert wheel.advance(19 * TICK) == []
    assert wheel.advance(20 * TICK) == [1]
    handle = wheel.add(50 * TICK, 2)
    assert wheel.cancel_many(array("q", [handle, handle])) == 1


def test_stale_entries_stay_bounded_under_add_and_cancel() -> None:
    """Counting them by the depth of the free stack never noticed this."""
    wheel = Wheel()
    live = 10_000
    wheel.add_many(array("q", range(SPAN, SPAN + live)), array("q", range(live)))
    for round_ in range(50):
        deadlines = array("q", [SPAN + (i * 7919 + round_) % (2 * SPAN) for i in range(20_000)])
        for handle in wheel.add_many(deadlines, deadlines):
            wheel.cancel(handle)
            assert wheel.stats().entries <= 3 * (len(wheel) + 1) + 65_536
    wheel.check()
    assert wheel.stats().swept > 0
    assert len(wheel.advance(4 * SPAN)) == live


def test_stale_entries_stay_bounded_when_one_timer_keeps_moving_earlier() -> None:
    wheel = Wheel()
    handle = wheel.add(3 * SPAN, 1)
    for step in range(200_000):
        wheel.reschedule(handle, 3 * SPAN - step * TICK)
    assert wheel.stats().entries <= 3 + 65_536
    wheel.check()
    assert wheel.advance(3 * SPAN - 199_999 * TICK) == [1]


def test_a_sweep_ends_although_the_last_slot_is_never_empty() -> None:
    """A standing backlog of late timers, drained in portions and refilled."""
    wheel = Wheel(10 * BLOCK)
    backlog = 50_000
    wheel.add_many(array("q", [1]) * backlog, array("q", range(backlog)))
    moving = array("q", [wheel.add(3_000 * BLOCK, -1)]) * 7_000
    back_and_forth = array("q", [3_000 * BLOCK, 2_000 * BLOCK] * 3_500)
    for _ in range(100):
        wheel.reschedule_many(moving, back_and_forth)
        assert len(wheel.advance(10 * BLOCK, 31)) == 31
        wheel.add_many(array("q", [1]) * 31, array("q", range(31)))
        assert wheel.stats().entries <= 3 * len(wheel) + 65_536
    wheel.check()


def test_stale_entries_are_swept_also_when_timers_only_expire() -> None:
    wheel = Wheel()
    far = wheel.add_many(array("q", [3_000 * BLOCK]) * 200_000, array("q", range(200_000)))
    wheel.add_many(array("q", [5 * TICK]) * 200_000, array("q", range(200_000)))
    wheel.cancel_many(far)
    wheel.advance(6 * TICK)
    assert wheel.stats().entries <= 65_536
    wheel.check()


def test_a_sweep_can_be_interrupted_inside_a_slot() -> None:
    wheel = Wheel()
    block = array("q", [30 * BLOCK + TICK]) * 150_000
    handles = wheel.add_many(block, array("q", range(150_000)))
    for number, handle in enumerate(handles):
        if number % 3:
            wheel.cancel(handle)
        if number % 10_000 == 0:
            wheel.check()
    wheel.add(30 * BLOCK + TICK, -1)
    wheel.advance(29 * BLOCK + 100 * TICK)
    wheel.check()
    assert wheel.advance(31 * BLOCK) == [*range(0, 150_000, 3), -1]


@pytest.mark.parametrize("handle", [0, 1, -1, 1 << 62, 1 << 32])
def test_a_handle_that_was_never_issued_is_foreign(handle: int) -> None:
    wheel = Wheel()
    wheel.add(TICK, 1)
    with pytest.raises(ForeignHandle, match=f"handle {handle} was never issued"):
        wheel.cancel(handle)
    with pytest.raises(ForeignHandle):
        wheel.reschedule(handle, TICK)
    with pytest.raises(ForeignHandle, match="at position 0"):
        wheel.cancel_many(array("q", [handle]))
    assert wheel.advance(TICK) == [1]


def test_a_handle_of_another_wheel_is_foreign() -> None:
    wheels = [Wheel() for _ in range(100)]
    handles = [wheel.add(TICK, 1) for wheel in wheels]
    for wheel, handle in zip(wheels, handles[1:] + handles[:1], strict=True):
        with pytest.raises(ForeignHandle):
            wheel.cancel(handle)


def test_a_foreign_handle_in_a_batch_changes_nothing() -> None:
    wheel = Wheel()
    handles = wheel.add_many(array("q", [TICK, TICK]), array("q", [1, 2]))
    handles.append(12345)
    with pytest.raises(ForeignHandle, match="12345 at position 2"):
        wheel.cancel_many(handles)
    with pytest.raises(ForeignHandle, match="12345 at position 2"):
        wheel.reschedule_many(handles, array("q", [9 * TICK] * 3))
    assert wheel.advance(TICK) == [1, 2]


def test_clear_cancels_everything_and_the_wheel_goes_on() -> None:
    wheel = ObjectWheel[str](5 * TICK)
    handles = [wheel.add(i * TICK, str(i)) for i in range(100)]
    wheel.clear()
    wheel.check()
    assert len(wheel) == 0
    assert not any(wheel.cancel(handle) for handle in handles)
    wheel.add(6 * TICK, "after")
    assert wheel.advance(200 * TICK) == ["after"]
