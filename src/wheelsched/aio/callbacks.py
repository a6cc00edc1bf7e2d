"""The callbacks of an AsyncWheel: what the loop calls when it is due.

Invariant: a timer is in the wheel, or due (in the portion that has left the wheel and is being
called), or done (its `callback` is None). A portion is called to its end before the next one
leaves the wheel, whatever its callbacks raise, cancel or reschedule.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context

from wheelsched._wheel import ObjectWheel, WheelStats
from wheelsched.aio.loop import check_loop


class Timer:
    """A callback that waits for its time. Once called or cancelled, its `callback` is None."""

    __slots__ = ("_callbacks", "args", "callback", "context", "handle", "moved", "when_ns")

    def __init__(
        self,
        callbacks: "Callbacks",
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> None:
        self._callbacks = callbacks
        self.when_ns = when_ns
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.handle = 0
        self.moved = False

    def cancel(self) -> bool:
        """Return True when the callback will now never be called, False when it was too late.

        Allowed on a closed wheel, so that a `finally` need not ask.
        """
        return self._callbacks.cancel(self)

    def reschedule(self, when_ns: int) -> bool:
        """Call back at `when_ns` instead. False when it was called or cancelled already."""
        return self._callbacks.reschedule(self, when_ns)

    def reschedule_later(self, delay_s: float) -> bool:
        """Call back in `delay_s` from now instead. False as in `reschedule`."""
        return self._callbacks.reschedule(self, self._callbacks.after(delay_s))

    def __repr__(self) -> str:
        return f"<Timer {self.callback!r} at {self.when_ns} ns>"


class Callbacks:
    """The wheel of callbacks; `expect(when_ns)` is told what to wake up for.

    A timer is its own payload in the wheel. Its `handle` there, and whether it `moved` back into
    the wheel while it was due, are for this class alone.
    """

    def __init__(
        self,
        wheel: ObjectWheel[Timer],
        *,
        after: Callable[[float], int],
        expect: Callable[[int], None],
        portion: int,
    ) -> None:
        if portion < 1:
            raise ValueError(f"portion must be at least 1, not {portion}")
        self.after = after
        self.failed = 0
        self._wheel = wheel
        self._expect = expect
        self._portion = portion
        self._due: deque[Timer] = deque()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._wheel) + len(self._still_due())

    def stats(self) -> WheelStats:
        return self._wheel.stats()

    def add(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
    ) -> Timer:
        check_loop(self._loop)
        timer = Timer(self, when_ns, callback, args, copy_context() if context is None else context)
        timer.handle = self._wheel.add(when_ns, timer)
        self._expect(when_ns)
        return timer

    def cancel(self, timer: Timer) -> bool:
        check_loop(self._loop)
        if timer.callback is None or self._wheel.closed:
            return False
        self._wheel.cancel(timer.handle)
        timer.callback, timer.args = None, ()
        return True

    def reschedule(self, timer: Timer, when_ns: int) -> bool:
        check_loop(self._loop)
        if timer.callback is None:
            return False
        if not self._wheel.reschedule(timer.handle, when_ns):
            # It is due, and an earlier callback of its portion moves it: back into the wheel.
            timer.handle = self._wheel.add(when_ns, timer)
            timer.moved = True
        timer.when_ns = when_ns
        self._expect(when_ns)
        return True

    def next_expiry(self) -> int | None:
        # A portion is left over only if a callback raised KeyboardInterrupt or SystemExit.
        return self._wheel.now_ns if self._due else self._wheel.next_expiry()

    def call_due(self, now_ns: int) -> None:
        """Call one portion of what is due, so that the loop does its other work in between."""
        due = self._due
        if not due:
            due.extend(self._wheel.advance(now_ns, self._portion))
        while due:
            timer = due.popleft()
            callback, args = timer.callback, timer.args
            if timer.moved:
                timer.moved = False
            elif callback is not None:
                timer.callback, timer.args = None, ()
                try:
                    timer.context.run(callback, *args)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio's own handles do
                    self._report(timer, callback, error)

    def close(self) -> list[Timer]:
        """Return the timers that were never called, in the order of their times."""
        pending = self._still_due() + self._wheel.advance(self._wheel.max_deadline_ns)
        self._due.clear()
        self._wheel.close()
        return pending

    def _still_due(self) -> list[Timer]:
        return [timer for timer in self._due if timer.callback is not None and not timer.moved]

    def _report(self, timer: Timer, callback: object, error: BaseException) -> None:
        self.failed += 1
        self._loop.call_exception_handler(
            {
                "message": f"Exception in callback {callback!r} of an AsyncWheel",
                "exception": error,
                "timer": timer,
            }
        )
