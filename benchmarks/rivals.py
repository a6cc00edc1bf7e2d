"""The wheel and what people use in its place, behind one interface.

Every rival takes the same deadlines and gives the same answers. A rival does each operation
in the best way that its own documentation shows; the wheel may use its batches, because
having them is its point.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import uvloop
from sortedcontainers import SortedList

from wheelsched import Wheel


class Rival(Protocol):
    name: str

    def __init__(self, capacity: int = 0) -> None: ...
    def add_many(self, deadlines_ns: array[int], keys: array[int]) -> Sequence[Any]: ...
    def add_and_cancel(self, deadlines_ns: array[int]) -> None: ...
    def close(self) -> None: ...


class Firing(Rival, Protocol):
    """A rival that can be told the time."""

    def reschedule_many(self, handles: Any, deadlines_ns: array[int]) -> None: ...
    def advance(self, now_ns: int) -> list[int]: ...


class WheelRival:
    name = "wheel"

    def __init__(self, capacity: int = 0) -> None:
        self.wheel = Wheel(capacity=capacity)

    def advance(self, now_ns: int) -> list[int]:
        return self.wheel.advance(now_ns)

    def add_many(self, deadlines_ns: array[int], keys: array[int]) -> array[int]:
        return self.wheel.add_many(deadlines_ns, keys)

    def reschedule_many(self, handles: array[int], deadlines_ns: array[int]) -> None:
        self.wheel.reschedule_many(handles, deadlines_ns)

    def add_and_cancel(self, deadlines_ns: array[int]) -> None:
        add, cancel = self.wheel.add, self.wheel.cancel
        for deadline in deadlines_ns:
            cancel(add(deadline, 7))

    def close(self) -> None:
        self.wheel.close()


class HeapRival:
    """heapq with lazy deletion, as its documentation shows: a removed entry is marked."""

    name = "heapq"

    def __init__(self, capacity: int = 0) -> None:
        self.heap: list[list[Any]] = []
        self.added = 0

    def add_many(self, deadlines_ns: array[int], keys: array[int]) -> list[list[Any]]:
        heap, push, added = self.heap, heapq.heappush, self.added
        handles = []
        for deadline, key in zip(deadlines_ns, keys, strict=True):
            entry = [deadline, added, key]
            added += 1
            push(heap, entry)
            handles.append(entry)
        self.added = added
        return handles

    def reschedule_many(self, handles: list[list[Any]], deadlines_ns: array[int]) -> None:
        heap, push, added = self.heap, heapq.heappush, self.added
        for entry, deadline in zip(handles, deadlines_ns, strict=True):
            moved = [deadline, added, entry[2]]
            added += 1
            entry[2] = None
            push(heap, moved)
        self.added = added

    def add_and_cancel(self, deadlines_ns: array[int]) -> None:
        heap, push, added = self.heap, heapq.heappush, self.added
        for deadline in deadlines_ns:
            entry: list[Any] = [deadline, added, 7]
            added += 1
            push(heap, entry)
            entry[2] = None
        self.added = added

    def advance(self, now_ns: int) -> list[int]:
        heap, pop = self.heap, heapq.heappop
        expired = []
        while heap and heap[0][0] <= now_ns:
            key = pop(heap)[2]
            if key is not None:
                expired.append(key)
        return expired

    def close(self) -> None:
        self.heap.clear()


class SortedRival:
    name = "sortedcontainers"

    def __init__(self, capacity: int = 0) -> None:
        self.timers = SortedList()

    def add_many(self, deadlines_ns: array[int], keys: array[int]) -> list[tuple[int, int]]:
        handles = list(zip(deadlines_ns, keys, strict=True))
        self.timers.update(handles)
        return handles

    def reschedule_many(self, handles: list[tuple[int, int]], deadlines_ns: array[int]) -> None:
        remove, add = self.timers.remove, self.timers.add
        for handle, deadline in zip(handles, deadlines_ns, strict=True):
            remove(handle)
            add((deadline, handle[1]))

    def add_and_cancel(self, deadlines_ns: array[int]) -> None:
        remove, add = self.timers.remove, self.timers.add
        for deadline in deadlines_ns:
            timer = (deadline, -7)
            add(timer)
            remove(timer)

    def advance(self, now_ns: int) -> list[int]:
        end = self.timers.bisect_left((now_ns + 1, -(1 << 63)))
        expired = [key for _, key in self.timers[:end]]
        del self.timers[:end]
        return expired

    def close(self) -> None:
        self.timers.clear()


class LoopRival:
    """`call_at` of an event loop that is not running: adding and cancelling, not firing."""

    name = "asyncio"

    def __init__(self, capacity: int = 0) -> None:
        self.loop = self.make()
        self.start = self.loop.time() + 3_600

    def make(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop()

    def add_many(self, deadlines_ns: array[int], keys: array[int]) -> list[asyncio.TimerHandle]:
        call_at, start = self.loop.call_at, self.start
        return [
            call_at(start + deadline / 1e9, ignore, key)
            for deadline, key in zip(deadlines_ns, keys, strict=True)
        ]

    def add_and_cancel(self, deadlines_ns: array[int]) -> None:
        call_at, start = self.loop.call_at, self.start
        for deadline in deadlines_ns:
            call_at(start + deadline / 1e9, ignore, 7).cancel()

    def close(self) -> None:
        self.loop.close()


class UvloopRival(LoopRival):
    name = "uvloop"

    def make(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


def ignore(key: int) -> None:
    """What the event loops would call."""


def fire(rival: Firing, start_ns: int, end_ns: int, step_ns: int) -> int:
    """Advance in steps; how many expired."""
    expired = 0
    advance = rival.advance
    for now_ns in range(start_ns, end_ns, step_ns):
        expired += len(advance(now_ns))
    return expired


def worst_step(rival: Firing, start_ns: int, end_ns: int, step_ns: int) -> int:
    """Advance in steps; how long the longest took, in nanoseconds."""
    worst = 0
    advance, clock = rival.advance, time.perf_counter_ns
    for now_ns in range(start_ns, end_ns, step_ns):
        begun = clock()
        advance(now_ns)
        worst = max(worst, clock() - begun)
    return worst
