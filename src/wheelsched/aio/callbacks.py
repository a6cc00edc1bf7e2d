"""The callbacks of an AsyncWheel: what the loop calls when it is due.

Invariant: a timer is in the wheel, or due (in the portion that has left the wheel and is being
called), or done (its `callback` is None). A portion is called to its end before the next one
leaves the wheel, whatever its callbacks raise, cancel or reschedule.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context

from wheelsched._timer import Portion, Timer
from wheelsched._wheel import ObjectWheel, WheelStats
from wheelsched.aio.loop import check_loop


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
        self._due = Portion([])
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._wheel) + len(self._due.pending())

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
        timer = Timer(self, callback, args, context)
        timer.handle = self._wheel.add(when_ns, timer)
        timer.when_ns = when_ns
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
        if not self._due:
            self._due = Portion(self._wheel.advance(now_ns, self._portion))
        self._due.call(self._report)

    def close(self) -> list[Timer]:
        """Return the timers that were never called, in the order of their times."""
        pending = self._due.pending() + self._wheel.advance(self._wheel.max_deadline_ns)
        self._due.stop()
        self._wheel.close()
        return pending

    def _report(self, timer: Timer, callback: object, error: BaseException) -> None:
        self.failed += 1
        self._loop.call_exception_handler(
            {
                "message": f"Exception in callback {callback!r} of an AsyncWheel",
                "exception": error,
                "timer": timer,
            }
        )
