"""Objects as payloads: whoever holds them, and what they do when they go."""

import gc
import threading
import weakref
from array import array

import pytest

from wheelsched import ObjectWheel, Wheel
from wheelsched.errors import WheelBusy, WheelClosed

TICK = 1 << 20


class Payload:
    pass


def test_any_object_is_a_payload() -> None:
    wheel = ObjectWheel[object]()
    payloads: list[object] = [None, "text", 5, [], Payload()]
    for payload in payloads:
        wheel.add(TICK, payload)
    assert wheel.advance(TICK) == payloads


def test_a_batch_of_objects() -> None:
    wheel = ObjectWheel[str]()
    handles = wheel.add_many(array("q", [TICK, 2 * TICK, 3 * TICK]), ("a", "b", "c"))
    assert wheel.cancel_many(handles[1:2]) == 1
    assert wheel.reschedule(handles[0], 4 * TICK)
    assert wheel.advance(4 * TICK) == ["c", "a"]


def test_the_wheel_lets_go_of_what_expired_was_cancelled_or_cleared() -> None:
    wheel = ObjectWheel[Payload]()

    def add(deadline: int) -> tuple[int, weakref.ref[Payload]]:
        payload = Payload()
        return wheel.add(deadline, payload), weakref.ref(payload)

    _, expired = add(TICK)
    cancelled_handle, cancelled = add(9 * TICK)
    batch_handle, batch = add(9 * TICK)
    _, cleared = add(9 * TICK)
    assert all(payload() for payload in (expired, cancelled, batch, cleared))

    taken = wheel.advance(TICK)
    assert expired() is taken[0]
    del taken[:]
    assert expired() is None
    wheel.cancel(cancelled_handle)
    assert cancelled() is None
    wheel.cancel_many(array("q", [batch_handle]))
    assert batch() is None
    wheel.clear()
    assert cleared() is None


def test_payloads_are_visible_to_the_garbage_collector() -> None:
    payload = Payload()
    wheel = ObjectWheel[Payload]()
    payload.wheel = wheel  # type: ignore[attr-defined] # a cycle through the wheel
    wheel.add(TICK, payload)
    seen = weakref.ref(payload)
    del payload, wheel
    gc.collect()
    assert seen() is None


class Reentrant:
    """Uses the wheel while the wheel lets it go."""

    def __init__(self, wheel: ObjectWheel["Reentrant | str"]) -> None:
        self.wheel = wheel

    def __del__(self) -> None:
        self.wheel.add(5 * TICK, "added while going")


@pytest.mark.parametrize("way", ["cancel", "cancel_many", "clear"])
def test_a_payload_may_use_the_wheel_as_it_goes(way: str) -> None:
    wheel = ObjectWheel["Reentrant | str"]()
    handles = [wheel.add(TICK, Reentrant(wheel)) for _ in range(20)]
    if way == "cancel":
        for handle in handles:
            wheel.cancel(handle)
    elif way == "cancel_many":
        wheel.cancel_many(array("q", handles))
    else:
        wheel.clear()
    wheel.check()
    assert wheel.advance(5 * TICK) == ["added while going"] * 20


def test_a_payload_may_close_the_wheel_as_it_goes() -> None:
    class Closing:
        def __del__(self) -> None:
            wheel.close()

    wheel = ObjectWheel[Closing]()
    handle = wheel.add(TICK, Closing())
    wheel.add(TICK, Closing())
    assert wheel.cancel(handle)
    assert wheel.closed


def test_a_finalizer_that_enters_the_wheel_in_the_middle_is_refused_or_served() -> None:
    """A collection may start inside `advance`, where objects are made. Never corrupted."""
    answers: list[str] = []

    class Intruder:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            try:
                wheel.add(50 * TICK, 0)
                answers.append("served")
            except WheelBusy:
                answers.append("refused")

    wheel = Wheel()
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for now in range(1, 200):
            wheel.add(now * TICK, now)
            Intruder()
            assert now in wheel.advance(now * TICK)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    wheel.check()
    assert len(answers) == 199


def test_threads_that_hammer_one_wheel() -> None:
    """Each operation is atomic: nothing is lost, nothing comes twice, every invariant holds."""
    wheel = ObjectWheel[int]()
    threads, each = 4, 5_000
    expired: list[int] = []
    cancelled: list[int] = []
    start = threading.Barrier(threads + 1)

    def hammer(number: int) -> None:
        start.wait(timeout=60)
        for i in range(each):
            key = number * each + i
            handle = wheel.add((i % 50) * TICK, key)
            if i % 3 == 0 and wheel.cancel(handle):
                cancelled.append(key)
            if i % 7 == 0:
                wheel.reschedule(handle, (i % 90) * TICK)

    workers = [threading.Thread(target=hammer, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    start.wait(timeout=60)
    now = 0
    while any(worker.is_alive() for worker in workers):
        now += TICK
        expired += wheel.advance(now, limit=100)
    for worker in workers:
        worker.join(timeout=60)
    wheel.check()
    expired += wheel.advance(now + 1_000 * TICK)
    assert sorted(expired + cancelled) == list(range(threads * each))


def test_drain_takes_everything_out_by_deadline_however_far() -> None:
    wheel: ObjectWheel[str] = ObjectWheel(1_000)
    wheel.add(wheel.max_deadline_ns, "last")
    wheel.add(5, "late")
    cancelled = wheel.add(7_000_000, "cancelled")
    moved = wheel.add(8_000_000, "moved")
    wheel.cancel(cancelled)
    wheel.reschedule(moved, 10**15)
    assert wheel.drain() == [(5, "late"), (10**15, "moved"), (wheel.max_deadline_ns, "last")]
    assert len(wheel) == 0
    assert wheel.drain() == []
    assert not wheel.cancel(moved)
    wheel.add(2_000, "next")
    wheel.check()
    assert wheel.advance(2_000_000) == ["next"]
    wheel.close()
    with pytest.raises(WheelClosed):
        wheel.drain()
