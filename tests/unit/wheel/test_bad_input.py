"""Bad input gets a clear exception and changes nothing."""

import copy
import pickle
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wheelsched import KeyedWheel, ObjectWheel, UUIDWheel, Wheel
from wheelsched.errors import DeadlineOutOfRange, ForeignHandle, WheelClosed, WheelError

TICK = 1 << 20
ALL = [Wheel, ObjectWheel, KeyedWheel, UUIDWheel]

ONE = array("q", [5])
HUGE = pytest.param(10**5_000, id="huge")
TWO = array("q", [5, 6])


@pytest.fixture
def wheel() -> Wheel:
    wheel = Wheel()
    wheel.add(TICK, 1)
    return wheel


def unchanged(wheel: Wheel) -> None:
    wheel.check()
    assert wheel.advance(TICK) == [1]


@pytest.mark.parametrize("deadline", [-1, -(1 << 70), 1 << 63, 1 << 70, (1 << 63) - 1, HUGE])
def test_a_deadline_out_of_range(wheel: Wheel, deadline: int) -> None:
    handle = wheel.add(TICK, 1)
    wheel.cancel(handle)
    with pytest.raises(DeadlineOutOfRange, match=r"deadline_ns must lie between 0 and .* does not"):
        wheel.add(deadline, 1)
    with pytest.raises(DeadlineOutOfRange):
        wheel.reschedule(handle, deadline)
    unchanged(wheel)


def test_a_deadline_out_of_range_in_a_batch_is_named_with_its_position(wheel: Wheel) -> None:
    with pytest.raises(DeadlineOutOfRange, match="-7 at position 2"):
        wheel.add_many(array("q", [1, 2, -7]), array("q", [1, 2, 3]))
    unchanged(wheel)


@pytest.mark.parametrize("value", [1.5, "1", None, b"1", [1]])
def test_what_is_not_an_integer(wheel: Wheel, value: Any) -> None:
    with pytest.raises(TypeError, match="deadline_ns must be an int, not"):
        wheel.add(value, 1)
    with pytest.raises(TypeError, match="key must be an int, not"):
        wheel.add(1, value)
    with pytest.raises(TypeError, match="handle must be an int, not"):
        wheel.cancel(value)
    with pytest.raises(TypeError, match="now_ns must be an int, not"):
        wheel.advance(value)
    unchanged(wheel)


def test_numpy_integers_are_integers(wheel: Wheel) -> None:
    handle = wheel.add(np.int64(TICK), np.int32(9))  # type: ignore[arg-type] # __index__ will do
    assert wheel.deadline(handle) == TICK
    assert wheel.advance(TICK) == [1, 9]


def test_a_key_that_does_not_fit(wheel: Wheel) -> None:
    with pytest.raises(OverflowError, match="key must fit in 64 bits"):
        wheel.add(1, 1 << 63)
    unchanged(wheel)


@pytest.mark.parametrize("now", [-1, 1 << 63, 1 << 70])
def test_a_time_out_of_range(wheel: Wheel, now: int) -> None:
    with pytest.raises(DeadlineOutOfRange, match="now_ns must lie between"):
        wheel.advance(now)
    with pytest.raises((DeadlineOutOfRange, OverflowError), match="now_ns must"):
        Wheel(now)
    unchanged(wheel)


@pytest.mark.parametrize("handle", [1 << 64, -(1 << 70), HUGE])
def test_a_handle_that_does_not_fit(wheel: Wheel, handle: int) -> None:
    with pytest.raises(ForeignHandle, match="never issued by any wheel"):
        wheel.cancel(handle)
    unchanged(wheel)


def test_a_buffer_that_is_not_aligned(wheel: Wheel) -> None:
    crooked = memoryview(bytearray(17))[1:].cast("q")
    with pytest.raises(BufferError, match="must begin at a multiple of 8 bytes"):
        wheel.add_many(crooked, crooked)
    unchanged(wheel)


@pytest.mark.parametrize("bad", [np.array([object()] * 2), np.zeros(2), array("q", [1, 2])])
def test_a_buffer_that_holds_no_uuids(bad: Any) -> None:
    wheel = UUIDWheel()
    wheel.upsert(bytes(16), 1)
    with pytest.raises(TypeError, match="keys must hold bytes, 16 for each key"):
        wheel.advance_into(TICK, bad)
    with pytest.raises(TypeError, match="keys must hold bytes, 16 for each key"):
        wheel.upsert_many(bad, ONE)
    assert len(wheel) == 1


@pytest.mark.parametrize("kinds", [(Wheel, ObjectWheel), (KeyedWheel, UUIDWheel)])
def test_no_class_is_two_kinds_of_wheel(kinds: tuple[type, ...]) -> None:
    with pytest.raises(TypeError, match="lay-out conflict"):
        type("Chimera", kinds, {})


def test_a_negative_limit(wheel: Wheel) -> None:
    with pytest.raises(ValueError, match="limit must not be negative"):
        wheel.advance(TICK, limit=-1)
    unchanged(wheel)


@pytest.mark.parametrize(
    "bad",
    [
        array("i", [1]),
        array("Q", [1]),
        array("d", [1]),
        b"12345678",
        np.zeros(1, dtype=np.uint64),
        np.zeros(1, dtype=np.float64),
        np.zeros(1, dtype=">i8"),
        np.zeros((1, 1), dtype=np.int64),
        memoryview(array("i", [1])),
    ],
)
def test_a_buffer_of_the_wrong_type(wheel: Wheel, bad: Any) -> None:
    with pytest.raises(TypeError, match="deadlines_ns must hold signed 64-bit integers"):
        wheel.add_many(bad, ONE)
    with pytest.raises(TypeError, match="keys must hold signed 64-bit integers"):
        wheel.add_many(ONE, bad)
    with pytest.raises(TypeError, match="handles must hold signed 64-bit integers"):
        wheel.cancel_many(bad)
    unchanged(wheel)


@pytest.mark.parametrize(
    "good",
    [
        array("q", [TICK]),
        array("l", [TICK]),
        np.array([TICK], dtype=np.int64),
        np.array([TICK], dtype="<i8"),
        memoryview(array("q", [0, TICK]))[1:],
        memoryview(bytes(np.array([TICK], dtype=np.int64))).cast("q"),
    ],
)
def test_every_buffer_of_the_right_type(wheel: Wheel, good: Any) -> None:
    (handle,) = wheel.add_many(good, good)
    assert wheel.cancel_many(np.array([handle])) == 1
    wheel.add_many(good, good)
    assert wheel.advance(TICK) == [1, TICK]


def test_what_is_no_buffer_or_not_contiguous(wheel: Wheel) -> None:
    with pytest.raises(TypeError, match="must be a buffer, such as array"):
        wheel.add_many([1], ONE)  # type: ignore[arg-type] # on purpose
    with pytest.raises(BufferError, match="deadlines_ns must be contiguous"):
        wheel.add_many(np.arange(4)[::2], TWO)
    with pytest.raises(BufferError, match="keys must be writable and contiguous"):
        wheel.advance_into(TICK, memoryview(array("q", [0])).toreadonly())
    unchanged(wheel)


def test_lengths_that_do_not_match(wheel: Wheel) -> None:
    with pytest.raises(ValueError, match="same length, and have 2 and 1"):
        wheel.add_many(TWO, ONE)
    with pytest.raises(ValueError, match="same length, and have 1 and 2"):
        wheel.reschedule_many(wheel.add_many(ONE, ONE)[:1], TWO)
    with pytest.raises(ValueError, match="same length, and have 2 and 3"):
        ObjectWheel[str]().add_many(TWO, "abc")
    with pytest.raises(ValueError, match="same length, and have 1 and 2"):
        KeyedWheel().upsert_many(ONE, TWO)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tick_shift": 9}, "tick_shift must be 10 to 40, not 9"),
        ({"tick_shift": 41}, "tick_shift must be 10 to 40, not 41"),
        ({"capacity": -1}, "capacity must be 0 to"),
        ({"capacity": 1 << 40}, "capacity must be 0 to"),
    ],
)
@pytest.mark.parametrize("kind", ALL)
def test_a_wheel_that_cannot_be(kind: type[Wheel], arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def test_counts_that_cannot_be(wheel: Wheel) -> None:
    with pytest.raises(ValueError, match="step_ns must be positive"):
        wheel.counts(0, 10, 0)
    with pytest.raises(ValueError, match="from_ns must not be negative"):
        wheel.counts(-1, 10, 1)
    with pytest.raises(ValueError, match="at most 16777216 are counted"):
        wheel.counts(0, 1 << 60, 1)


@pytest.mark.parametrize("kind", ALL)
def test_use_after_close(kind: type[Wheel]) -> None:
    with kind() as wheel:
        assert repr(wheel) == f"<{kind.__name__} timers=0 now_ns=0>"
    wheel.close()
    assert wheel.closed
    assert len(wheel) == 0
    assert repr(wheel) == f"<{kind.__name__} closed>"
    uses: list[Callable[[], object]] = [
        lambda: wheel.advance(1),
        wheel.next_expiry,
        wheel.stats,
        wheel.check,
        wheel.clear,
        wheel.__enter__,
        lambda: wheel.counts(0, 1, 1),
    ]
    for use in uses:
        with pytest.raises(WheelClosed, match="the wheel is closed"):
            use()


def test_use_after_close_by_handle() -> None:
    wheel = Wheel()
    handle = wheel.add(1, 1)
    wheel.close()
    uses: list[Callable[[], object]] = [
        lambda: wheel.add(1, 1),
        lambda: wheel.add_many(ONE, ONE),
        lambda: wheel.cancel(handle),
        lambda: wheel.cancel_many(array("q", [handle])),
        lambda: wheel.reschedule(handle, 1),
        lambda: wheel.reschedule_many(array("q", [handle]), ONE),
        lambda: wheel.deadline(handle),
        lambda: wheel.advance_into(1, ONE),
    ]
    for use in uses:
        with pytest.raises(WheelClosed):
            use()


def test_use_after_close_by_key() -> None:
    wheel = KeyedWheel()
    wheel.close()
    uses: list[Callable[[], object]] = [
        lambda: wheel.upsert(1, 1),
        lambda: wheel.upsert_many(ONE, ONE),
        lambda: wheel.discard(1),
        lambda: wheel.discard_many(ONE),
        lambda: wheel.deadline(1),
        lambda: 1 in wheel,
        lambda: wheel.advance_into(1, ONE),
    ]
    for use in uses:
        with pytest.raises(WheelClosed):
            use()


def test_a_wheel_is_initialised_once() -> None:
    wheel = Wheel()
    with pytest.raises(WheelError, match="initialised once"):
        wheel.__init__()  # type: ignore[misc] # on purpose
    wheel.close()
    with pytest.raises(WheelError, match="initialised once"):
        wheel.__init__()  # type: ignore[misc] # on purpose


def test_a_subclass_that_forgets_to_initialise_is_closed() -> None:
    class Forgetful(Wheel):
        def __init__(self) -> None:
            pass

    with pytest.raises(WheelClosed):
        Forgetful().add(1, 1)


@pytest.mark.parametrize("kind", ALL)
def test_a_wheel_is_not_copied(kind: type[Wheel]) -> None:
    wheel = kind()
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(wheel)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(wheel)


def test_an_index_that_closes_the_wheel_while_it_is_asked() -> None:
    class Closing:
        def __init__(self, wheel: Wheel) -> None:
            self.wheel = wheel

        def __index__(self) -> int:
            self.wheel.close()
            return 5

    uses: list[Callable[[Any, Any], object]] = [
        lambda wheel, closing: wheel.add(closing, 1),
        lambda wheel, closing: wheel.advance(closing),
        lambda wheel, closing: wheel.advance_into(closing, ONE),
    ]
    for use in uses:
        wheel = Wheel()
        wheel.add(5, 1)
        with pytest.raises(WheelClosed):
            use(wheel, Closing(wheel))
