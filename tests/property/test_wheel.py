"""The wheel against a model that is a dict and a sort, with every invariant checked on the way."""

import os
import random
from array import array
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wheelsched import KeyedWheel, ObjectWheel, Wheel

SHIFTS = st.sampled_from([10, 12, 20])
# In ticks: within the block, the next, the coarse level, the far level, and parked beyond.
DISTANCES = st.one_of(
    st.integers(-50, 50),
    st.integers(0, 600),
    st.integers(0, 300_000),
    st.integers(0, 2_000_000),
    st.integers(0, 60_000_000),
)


CROWDS = st.sampled_from([100, 2_500, 5_000])
FAR_END = 60 << 18  # ticks; what is added beyond may come out of order within its tick


class Timer:
    def __init__(self, key: int, deadline: int) -> None:
        self.key = key
        self.deadline = deadline
        self.late = False
        self.parked = False
        self.moved = False

    def move(self, deadline: int) -> None:
        self.deadline = deadline
        self.moved = True
        self.late = False


class WheelMachine(RuleBasedStateMachine):
    """Timers by handle. Late ones first, then tick by tick, each tick first in first out."""

    @initialize(
        kind=st.sampled_from([Wheel, ObjectWheel]),
        shift=SHIFTS,
        start=st.integers(0, 1 << 40),
        exact=st.booleans(),
    )
    def begin(self, kind: Any, shift: int, start: int, exact: bool) -> None:
        self.shift = shift
        self.exact = exact
        self.now = start
        self.wheel = kind(start, tick_shift=shift, exact_order=exact)
        self.timers: dict[int, Timer] = {}
        self.stale: list[int] = []
        self.keys = 0

    def at(self, distance: int, inside: int) -> int:
        return max(0, self.now + (distance << self.shift) + inside % (1 << self.shift))

    def tick(self, deadline: int) -> int:
        return -(-deadline >> self.shift)

    def note(self, handle: int, deadline: int) -> None:
        assert handle not in self.timers
        timer = Timer(self.keys, deadline)
        timer.late = deadline <= self.now
        timer.parked = deadline - self.now > FAR_END << self.shift
        self.timers[handle] = timer
        self.keys += 1

    @rule(distance=DISTANCES, inside=st.integers(0, 1 << 20))
    def add(self, distance: int, inside: int) -> None:
        deadline = self.at(distance, inside)
        self.note(self.wheel.add(deadline, self.keys), deadline)

    @rule(data=st.lists(st.tuples(DISTANCES, st.integers(0, 1 << 20)), max_size=60))
    def add_many(self, data: list[tuple[int, int]]) -> None:
        deadlines = array("q", [self.at(*each) for each in data])
        keys = array("q", range(self.keys, self.keys + len(deadlines)))
        for handle, deadline in zip(self.wheel.add_many(deadlines, keys), deadlines, strict=True):
            self.note(handle, deadline)

    @precondition(lambda self: len(self.timers) < 8_000)
    @rule(distance=DISTANCES, width=st.sampled_from([1, 256, 1 << 18]), count=CROWDS)
    def add_crowd(self, distance: int, width: int, count: int) -> None:
        """Thousands in one tick, one block or one span: enough to be split and pulled in steps."""
        deadlines = array("q", [self.at(distance + i * 7_919 % width, i) for i in range(count)])
        keys = array("q", range(self.keys, self.keys + count))
        for handle, deadline in zip(self.wheel.add_many(deadlines, keys), deadlines, strict=True):
            self.note(handle, deadline)

    @precondition(lambda self: self.timers)
    @rule(part=st.integers(2, 5), rest=st.integers(0, 4))
    def cancel_many(self, part: int, rest: int) -> None:
        """Every second, third … timer, in the order of their handles."""
        handles = sorted(self.timers)[rest::part]
        assert self.wheel.cancel_many(array("q", handles)) == len(handles)
        self.stale += handles
        for handle in handles:
            del self.timers[handle]

    @precondition(lambda self: self.timers)
    @rule(part=st.integers(2, 5), distance=DISTANCES, width=st.sampled_from([1, 300, 300_000]))
    def reschedule_many(self, part: int, distance: int, width: int) -> None:
        handles = sorted(self.timers)[::part]
        deadlines = [self.at(distance + i * 7_919 % width, i) for i in range(len(handles))]
        moved = self.wheel.reschedule_many(array("q", handles), array("q", deadlines))
        assert moved == len(handles)
        for handle, deadline in zip(handles, deadlines, strict=True):
            self.timers[handle].move(deadline)

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.timers)))
        assert self.wheel.cancel(handle)
        del self.timers[handle]
        self.stale.append(handle)

    @precondition(lambda self: self.timers)
    @rule(data=st.data(), distance=DISTANCES, inside=st.integers(0, 1 << 20))
    def reschedule(self, data: st.DataObject, distance: int, inside: int) -> None:
        handle = data.draw(st.sampled_from(sorted(self.timers)))
        deadline = self.at(distance, inside)
        assert self.wheel.reschedule(handle, deadline)
        self.timers[handle].move(deadline)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def use_stale(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(self.stale))
        assert not self.wheel.cancel(handle)
        assert not self.wheel.reschedule(handle, 1)
        assert self.wheel.deadline(handle) is None

    @rule(
        distance=st.one_of(st.integers(0, 3), st.integers(0, 400), st.integers(0, 3_000_000)),
        inside=st.integers(0, 1 << 20),
        limit=st.one_of(st.none(), st.integers(0, 20)),
    )
    def advance(self, distance: int, inside: int, limit: int | None) -> None:
        self.take(self.at(distance, inside), limit)

    @precondition(lambda self: self.timers)
    @rule()
    def sleep(self) -> None:
        expiry = self.wheel.next_expiry()
        assert expiry is not None
        self.take(expiry, None)

    def take(self, now: int, limit: int | None) -> None:
        by_key = {timer.key: handle for handle, timer in self.timers.items()}
        expired = self.wheel.advance(now, limit)
        self.now = now
        due = {
            t.key
            for t in self.timers.values()
            if t.late or self.tick(t.deadline) << self.shift <= now
        }
        assert len(set(expired)) == len(expired)
        timers = [self.timers[by_key[key]] for key in expired]
        assert all(timer.deadline <= now for timer in timers)
        assert limit is None or len(expired) <= limit
        if limit is None or len(expired) < limit:
            assert due <= set(expired)
        self.check_order([timer for timer in timers if not timer.moved])
        for key in expired:
            self.stale.append(by_key[key])
            del self.timers[by_key[key]]

    def check_order(self, timers: list[Timer]) -> None:
        late = [timer.key for timer in timers if timer.late]
        on_time = [timer for timer in timers if not timer.late]
        assert [timer.key for timer in timers[: len(late)]] == late
        if self.exact:
            assert on_time == sorted(on_time, key=lambda timer: timer.deadline)
        else:
            assert late == sorted(late)
            ticks = [self.tick(timer.deadline) for timer in on_time]
            assert ticks == sorted(ticks)
            placed = [(self.tick(t.deadline), t.key) for t in on_time if not t.parked]
            assert placed == sorted(placed)

    @invariant()
    def whole(self) -> None:
        if not hasattr(self, "wheel"):
            return
        self.wheel.check()
        assert len(self.wheel) == len(self.timers)
        expiry = self.wheel.next_expiry()
        if not self.timers:
            assert expiry is None
        else:
            first = min(timer.deadline for timer in self.timers.values())
            assert expiry is not None
            assert expiry <= max(self.now, self.tick(first) << self.shift)

    def teardown(self) -> None:
        if hasattr(self, "wheel"):
            remaining = self.wheel.advance(self.wheel.max_deadline_ns)
            assert sorted(remaining) == sorted(timer.key for timer in self.timers.values())


class KeyedWheelMachine(RuleBasedStateMachine):
    """Timers by key: a dict of deadlines is all there is to it."""

    keys = st.integers(-20, 20)

    def __init__(self) -> None:
        super().__init__()
        self.wheel = KeyedWheel()
        self.deadlines: dict[int, int] = {}
        self.now = 0

    @rule(key=keys, distance=DISTANCES)
    def upsert(self, key: int, distance: int) -> None:
        deadline = max(0, self.now + (distance << 20))
        assert self.wheel.upsert(key, deadline) == (key not in self.deadlines)
        self.deadlines[key] = deadline

    @rule(items=st.lists(st.tuples(keys, DISTANCES), max_size=30))
    def upsert_many(self, items: list[tuple[int, int]]) -> None:
        deadlines = [max(0, self.now + (distance << 20)) for _, distance in items]
        before = len(self.deadlines)
        added = self.wheel.upsert_many(array("q", [key for key, _ in items]), array("q", deadlines))
        for (key, _), deadline in zip(items, deadlines, strict=True):
            self.deadlines[key] = deadline
        assert added == len(self.deadlines) - before

    @rule(key=keys)
    def discard(self, key: int) -> None:
        assert self.wheel.discard(key) == (key in self.deadlines)
        self.deadlines.pop(key, None)

    @rule(distance=st.one_of(st.integers(0, 400), st.integers(0, 3_000_000)))
    def advance(self, distance: int) -> None:
        first = min(self.deadlines.values(), default=None)
        expiry = self.wheel.next_expiry()
        assert (expiry is None) == (first is None)
        assert first is None or expiry is None or expiry <= max(self.now, first)
        self.now += distance << 20
        expired = self.wheel.advance(self.now, limit=5)
        expired += self.wheel.advance(self.now)
        assert {key for key, due in self.deadlines.items() if due <= self.now} == set(expired)
        for key in expired:
            del self.deadlines[key]

    @invariant()
    def whole(self) -> None:
        self.wheel.check()
        assert len(self.wheel) == len(self.deadlines)
        for key in range(-20, 21):
            assert self.wheel.deadline(key) == self.deadlines.get(key)


LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(max_examples=2_000 if LONG else 100, stateful_step_count=60)
TestKeyedWheel = KeyedWheelMachine.TestCase
TestKeyedWheel.settings = settings(max_examples=2_000 if LONG else 50, stateful_step_count=40)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_ten_million_random_operations() -> None:
    """Singly and in batches, over hours of the wheel's time; each timer expires exactly once."""
    chance = random.Random(2_026)
    wheel = Wheel()
    deadlines: dict[int, int] = {}
    handles: list[int] = []
    now = operations = added = expired = cancelled = 0
    while operations < 10_000_000:
        batch = chance.choice([1, 10, 1_000])
        reach = chance.choice([1_000_000, 1_000_000_000, 600_000_000_000, 30_000_000_000_000])
        times = array("q", [now + chance.randrange(reach) for _ in range(batch)])
        new = wheel.add_many(times, array("q", range(added, added + batch)))
        added += batch
        handles.extend(new)
        deadlines.update(zip(new, times, strict=True))
        for _ in range(batch):
            handle = handles[chance.randrange(len(handles))]
            waiting = handle in deadlines
            if chance.random() < 0.5:
                assert wheel.cancel(handle) == waiting
                cancelled += waiting
                deadlines.pop(handle, None)
            else:
                later = now + chance.randrange(reach)
                assert wheel.reschedule(handle, later) == waiting
                if waiting:
                    deadlines[handle] = later
        if len(handles) > 200_000:
            handles = list(deadlines)
        now += chance.randrange(chance.choice([2_000_000, 500_000_000, 60_000_000_000]))
        expired += len(wheel.advance(now))
        deadlines = {
            handle: due for handle, due in deadlines.items() if due > wheel.now_ns >> 20 << 20
        }
        assert len(wheel) == len(deadlines) == added - expired - cancelled
        operations += 2 * batch + 1
        if operations % 997 < 2:
            wheel.check()
    wheel.check()
