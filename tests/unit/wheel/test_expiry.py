"""When timers expire, and in what order."""

from array import array

import pytest

from wheelsched import Wheel

TICK = 1 << 20
BLOCK = 256 * TICK
SPAN = 1024 * BLOCK
MINUTE = 60_000_000_000


def test_a_timer_expires_at_the_tick_that_ends_its_deadline() -> None:
    wheel = Wheel()
    wheel.add(TICK + 1, 7)
    assert wheel.advance(2 * TICK - 1) == []
    assert wheel.advance(2 * TICK) == [7]
    assert wheel.advance(3 * TICK) == []


def test_a_deadline_on_a_tick_is_not_a_tick_late() -> None:
    wheel = Wheel()
    wheel.add(5 * TICK, 7)
    assert wheel.advance(5 * TICK) == [7]


@pytest.mark.parametrize("shift", [10, 16, 20, 30, 40])
def test_a_tick_is_as_long_as_it_was_asked_to_be(shift: int) -> None:
    wheel = Wheel(tick_shift=shift)
    assert wheel.tick_ns == 1 << shift
    wheel.add((1 << shift) + 1, 7)
    assert wheel.advance((2 << shift) - 1) == []
    assert wheel.advance(2 << shift) == [7]


@pytest.mark.parametrize("start", [0, 1, TICK, 17 * SPAN + 3 * BLOCK + 5, 1_790_000_000 * 10**9])
@pytest.mark.parametrize(
    "distance",
    [1, TICK, BLOCK, 2 * BLOCK, 10 * MINUTE, 4 * SPAN, 64 * SPAN, 70 * SPAN, 1_000 * SPAN],
)
def test_every_level_gives_a_timer_back_in_time(start: int, distance: int) -> None:
    wheel = Wheel(start)
    deadline = start + distance
    wheel.add(deadline, 7)
    assert wheel.advance(deadline - 1) == []
    wheel.check()
    assert wheel.advance(deadline + TICK) == [7]
    wheel.check()


def test_ticks_come_in_order_and_a_tick_first_in_first_out() -> None:
    wheel = Wheel()
    deadlines = [5 * TICK, 3 * TICK, 5 * TICK - 1, 3 * TICK, BLOCK * 9, 3 * TICK - 5]
    for key, deadline in enumerate(deadlines):
        wheel.add(deadline, key)
    assert wheel.advance(BLOCK * 10) == [1, 3, 5, 0, 2, 4]


def test_exact_order_sorts_within_a_tick_and_keeps_equal_deadlines_as_they_came() -> None:
    wheel = Wheel(exact_order=True)
    for key, offset in enumerate([5, 3, 5, 1, 4, 3]):
        wheel.add(TICK + offset, key)
    assert wheel.advance(3 * TICK) == [3, 1, 5, 4, 0, 2]


def test_exact_order_holds_when_a_tick_is_taken_in_portions() -> None:
    wheel = Wheel(exact_order=True)
    for key, offset in enumerate([5, 3, 6, 1, 4, 2]):
        wheel.add(TICK + offset, key)
    portions = [wheel.advance(3 * TICK, limit=2) for _ in range(4)]
    assert portions == [[3, 5], [1, 4], [0, 2], []]


@pytest.mark.parametrize("distance", [BLOCK * 3, SPAN * 3, SPAN * 40])
def test_order_in_a_tick_survives_the_way_down_through_the_levels(distance: int) -> None:
    """Timers of one tick, added at every stage of its approach, come first in first out."""
    wheel = Wheel()
    deadline = distance
    keys = 0
    now = 0
    while now < deadline - TICK:
        for _ in range(3):
            wheel.add(deadline, keys)
            keys += 1
        now += max(TICK, (deadline - now) // 5)
        assert wheel.advance(min(now, deadline - TICK)) == []
        wheel.check()
    assert wheel.advance(deadline) == list(range(keys))


def test_order_holds_while_a_crowded_block_is_being_split() -> None:
    wheel = Wheel()
    crowd = 20_000
    deadline = 3 * BLOCK - TICK
    wheel.add_many(array("q", [deadline]) * crowd, array("q", range(crowd)))
    added = crowd
    for step in range(300):
        assert wheel.advance((200 + step) * TICK) == []
        wheel.add(deadline, added)
        added += 1
    assert wheel.stats().replaced > 0
    assert wheel.advance(deadline) == list(range(added))


def test_late_timers_come_first_also_when_time_has_not_moved() -> None:
    wheel = Wheel(10 * TICK)
    wheel.add(12 * TICK, 1)
    wheel.add(10 * TICK, 2)
    wheel.add(3 * TICK, 3)
    assert wheel.advance(10 * TICK) == [2, 3]
    wheel.add(0, 4)
    assert wheel.advance(12 * TICK) == [4, 1]


def test_time_backwards_nothing_happens() -> None:
    wheel = Wheel(10 * TICK)
    wheel.add(11 * TICK, 1)
    wheel.add(2 * TICK, 2)
    assert wheel.advance(9 * TICK) == []
    assert wheel.now_ns == 10 * TICK
    assert wheel.advance(11 * TICK) == [2, 1]


def test_a_jump_drains_everything_in_order() -> None:
    wheel = Wheel()
    deadlines = [TICK * (1 + 7919 * i % 1_000_003) for i in range(5_000)]
    wheel.add_many(array("q", deadlines), array("q", deadlines))
    assert wheel.advance(wheel.max_deadline_ns) == sorted(deadlines)
    wheel.check()


def test_a_limit_leaves_the_rest_for_the_next_call() -> None:
    wheel = Wheel()
    for key in range(10):
        wheel.add((key + 1) * TICK, key)
    assert wheel.advance(8 * TICK, limit=3) == [0, 1, 2]
    assert wheel.next_expiry() == 8 * TICK
    assert len(wheel) == 7
    wheel.check()
    assert wheel.advance(8 * TICK, limit=0) == []
    assert wheel.advance(8 * TICK) == [3, 4, 5, 6, 7]
    assert wheel.advance(20 * TICK) == [8, 9]


def test_a_limit_inside_one_tick() -> None:
    wheel = Wheel()
    wheel.add_many(array("q", [TICK]) * 100, array("q", range(100)))
    taken = [key for _ in range(12) for key in wheel.advance(TICK, limit=9)]
    assert taken == list(range(100))


def test_advance_into_a_buffer() -> None:
    wheel = Wheel()
    wheel.add_many(array("q", [TICK] * 5), array("q", range(5)))
    keys = array("q", [-1] * 3)
    assert wheel.advance_into(TICK, keys) == 3
    assert keys.tolist() == [0, 1, 2]
    assert wheel.advance_into(TICK, keys) == 2
    assert keys.tolist() == [3, 4, 2]
    assert wheel.advance_into(TICK, keys) == 0


def test_next_expiry_is_the_tick_of_the_earliest_timer() -> None:
    wheel = Wheel()
    assert wheel.next_expiry() is None
    for deadline in (90 * SPAN + 5, 3 * SPAN + 9, 5 * BLOCK + 1, BLOCK + 7, 3 * TICK - 1):
        handle = wheel.add(deadline, 1)
        assert wheel.next_expiry() == -(-deadline // TICK) * TICK
    wheel.cancel(handle)
    assert wheel.next_expiry() == BLOCK + TICK


def test_next_expiry_is_now_when_something_is_late() -> None:
    wheel = Wheel(10 * TICK)
    wheel.add(3, 1)
    assert wheel.next_expiry() == 10 * TICK


def test_next_expiry_looks_past_timers_that_were_moved_or_cancelled() -> None:
    wheel = Wheel(10 * TICK)
    late = wheel.add(3, 1)
    soon = wheel.add(20 * TICK, 2)
    gone = wheel.add(15 * TICK, 3)
    wheel.reschedule(late, 50 * TICK)
    wheel.reschedule(soon, 40 * TICK)
    wheel.cancel(gone)
    assert wheel.next_expiry() == 40 * TICK


def test_next_expiry_wakes_early_for_a_crowd_and_then_every_tick_until_it_is_split() -> None:
    wheel = Wheel()
    crowd = 50_000
    wheel.add_many(array("q", [10 * BLOCK + TICK]) * crowd, array("q", range(crowd)))
    first = wheel.next_expiry()
    assert first == 9 * BLOCK
    wakeups = 0
    expired: list[int] = []
    while expiry := wheel.next_expiry():
        assert expiry > wheel.now_ns
        expired += wheel.advance(expiry)
        wakeups += 1
    assert expired == list(range(crowd))
    assert 100 < wakeups <= 260


def test_sleeping_until_next_expiry_finds_every_timer_on_its_tick() -> None:
    wheel = Wheel()
    deadlines = [1 + 104_729 * i * i % (80 * SPAN) for i in range(300)]
    for deadline in deadlines:
        wheel.add(deadline, deadline)
    expired = []
    while expiry := wheel.next_expiry():
        for deadline in wheel.advance(expiry):
            assert 0 <= expiry - deadline < TICK
            expired.append(deadline)
    assert expired == sorted(deadlines, key=lambda deadline: -(-deadline // TICK))


def test_a_span_that_is_pulled_in_portions_is_seen_as_a_whole() -> None:
    wheel = Wheel()
    early = wheel.add_many(array("q", [4 * SPAN + 10 * TICK]) * 2_048, array("q", range(2_048)))
    late = wheel.add_many(array("q", [5 * SPAN - 10 * TICK]) * 100, array("q", range(100)))
    wheel.advance(SPAN + 5 * TICK)
    expiry = wheel.next_expiry()
    assert expiry is not None
    assert expiry <= 4 * SPAN + 10 * TICK
    assert wheel.cancel_many(late) == 100
    assert wheel.next_expiry() is not None
    assert wheel.advance(4 * SPAN + 10 * TICK) == list(range(len(early)))
    wheel.check()


def test_a_jump_over_half_a_century_takes_one_leap() -> None:
    wheel = Wheel()
    now = 1_790_000_000 * 10**9
    wheel.add_many(array("q", [now + SPAN]) * 10_000, array("q", range(10_000)))
    wheel.add(now + 200 * SPAN, -1)
    wheel.advance(now)
    assert wheel.stats().replaced < 50_000
    wheel.check()
    assert wheel.advance(now + SPAN + TICK) == list(range(10_000))
    assert wheel.advance(now + 201 * SPAN) == [-1]


def test_advancing_over_a_gap_touches_no_timer() -> None:
    wheel = Wheel()
    wheel.add_many(array("q", [40 * SPAN]) * 10_000, array("q", range(10_000)))
    for tick in range(1, 1_000):
        wheel.advance(tick * TICK)
    assert wheel.stats().replaced == 0


def test_next_expiry_looks_at_few_entries_however_many_were_moved() -> None:
    wheel = Wheel()
    count = 100_000
    handles = wheel.add_many(array("q", [TICK]) * count, array("q", range(count)))
    wheel.reschedule_many(handles, array("q", [9 * BLOCK]) * count)
    assert wheel.next_expiry() == TICK
    assert wheel.advance(TICK) == []
    assert wheel.next_expiry() == 8 * BLOCK


def test_counts_says_how_many_are_due_in_each_step() -> None:
    wheel = Wheel()
    handles = [wheel.add(deadline, 0) for deadline in (5, 10, 10, 29, 30, 44, 45)]
    assert wheel.counts(0, 45, 15) == [3, 1, 2]
    wheel.cancel(handles[1])
    wheel.reschedule(handles[0], 1_000)
    assert wheel.counts(0, 45, 15) == [1, 1, 2]
    assert wheel.counts(40, 47, 5) == [1, 1]
    assert wheel.counts(7, 7, 1) == []


def test_a_million_timers_in_a_second_are_all_there() -> None:
    wheel = Wheel(capacity=1_000_000)
    deadlines = array("q", range(BLOCK * 20, BLOCK * 24, BLOCK * 4 // 1_000_000))
    wheel.add_many(deadlines, deadlines)
    keys = array("q", bytes(8 * 100_000))
    taken = 0
    now = 0
    while len(wheel):
        now += TICK
        count = wheel.advance_into(now, keys)
        assert all(now - TICK < deadline <= now for deadline in keys[:count:997])
        taken += count
    assert taken == len(deadlines)
