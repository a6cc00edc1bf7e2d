"""Timer and Portion by themselves; what they do for a wheel is in aio/test_callbacks.py."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from wheelsched._timer import Portion, Timer


class Owner:
    """Knows nothing of wheels."""

    def cancel(self, timer: Timer) -> bool:
        timer.callback = None
        return True

    def reschedule(self, timer: Timer, when_ns: int) -> bool:
        timer.when_ns = when_ns
        return True

    def after(self, delay_s: float) -> int:
        return 1_000 + int(delay_s)


def timer_of(callback: Callable[..., object], *args: object) -> Timer:
    return Timer(Owner(), callback, args, None)


def ignore(*_: object) -> None:
    pass


def test_a_timer_asks_its_owner() -> None:
    timer = timer_of(print)
    assert timer.reschedule(7)
    assert timer.when_ns == 7
    assert timer.reschedule_later(5)
    assert timer.when_ns == 1_005
    assert timer.cancel()
    assert timer.callback is None


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 9, 100])
def test_a_portion_calls_each_once_in_order(size: int) -> None:
    called: list[int] = []
    portion = Portion([timer_of(called.append, number) for number in range(size)])
    assert len(portion) == size
    portion.call(ignore)
    portion.call(ignore)
    assert called == list(range(size))
    assert len(portion) == 0


def test_an_interrupted_portion_goes_on_where_it_stopped() -> None:
    called: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    portion = Portion([timer_of(called.append, 0), timer_of(interrupt), timer_of(called.append, 1)])
    with pytest.raises(KeyboardInterrupt):
        portion.call(ignore)
    assert called == [0]
    assert [timer.args for timer in portion.pending()] == [(1,)]
    portion.call(ignore)
    assert called == [0, 1]


def test_a_stopped_portion_calls_nothing_more() -> None:
    called: list[str] = []

    def stop() -> None:
        portion.stop()

    portion = Portion([timer_of(stop), timer_of(called.append, "never")])
    portion.call(ignore)
    assert called == []
    assert portion.pending() == []


def test_a_callback_that_calls_the_portion_again_does_no_harm() -> None:
    called: list[int] = []
    timers = [timer_of(called.append, number) for number in range(20)]
    timers.insert(0, timer_of(lambda: portion.call(ignore)))
    portion = Portion(timers)
    portion.call(ignore)
    assert called == list(range(20))


def test_what_is_no_timer_is_refused() -> None:
    anything: Any = [object() for _ in range(20)]
    with pytest.raises(TypeError):
        Portion(anything).call(ignore)
    nothing: Any = None
    with pytest.raises(TypeError):
        Portion(nothing)
    with pytest.raises(TypeError):
        Timer(Owner(), print, nothing, None)


def test_a_timer_in_a_cycle_is_collected() -> None:
    class Connection:
        timer: Timer

        def expire(self) -> None:
            pass

    connection = Connection()
    connection.timer = timer_of(connection.expire)
    gone = weakref.ref(connection)
    del connection
    gc.collect()
    assert gone() is None
