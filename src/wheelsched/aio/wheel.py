"""`AsyncWheel`: one wheel of callbacks and one of items, with one alarm.

Invariant: every accepted timer is called, handed out in a batch, cancelled, or returned by `close`:
exactly one of these, and never before its time. The alarm rings no later than the earliest time at
which there is something to do.

There are two wheels, so that a slow consumer of batches does not delay callbacks: the loop calls
callbacks, while items leave only when a consumer asks for them.
"""

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Generic, Self, TypeVar, TypeVarTuple

from wheelsched._wheel import ObjectWheel, WheelStats
from wheelsched.aio._callbacks import Callbacks, Timer, check_loop
from wheelsched.aio.batches import Batches
from wheelsched.aio.timeout import Timeout
from wheelsched.clock import SystemClock

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from wheelsched.ports import Clock

Item = TypeVar("Item")
Arguments = TypeVarTuple("Arguments")

_NS_PER_SECOND = 1_000_000_000
_NEVER_NS = 1 << 63
_LONGEST_S = 9e9
_MOST_AT_ONCE = 1 << 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pending(Generic[Item]):
    """The timers that were pending when a wheel was closed, ordered by time.

    An item comes with its `when_ns`; a Timer has its own.
    """

    callbacks: list[Timer]
    items: list[tuple[int, Item]]

    def __len__(self) -> int:
        return len(self.callbacks) + len(self.items)


@dataclass(frozen=True, slots=True)
class AsyncWheelStats:
    callbacks: WheelStats
    items: WheelStats
    wakeups: int
    failed_callbacks: int


class AsyncWheel(Generic[Item]):
    """Hundreds of thousands of timers for one loop. It belongs to the loop that it is created on.

    An instant is `when_ns`, in integer nanoseconds of the wheel's clock: see `now_ns`. A delay is
    `delay_s`, in seconds as int or float, like in asyncio.

    A timer expires at the end of its tick: never early, and at most `2**tick_shift` ns plus the
    loop's own delay late. Timers of one tick expire first in, first out, or with `exact_order`, by
    time. At most `portion` callbacks are called per iteration of the loop. The default `clock` is
    the system's; pass one that spins, or a VirtualClock in tests.

    Leaving `async with` closes the wheel without waiting, and logs a warning with the number of
    pending timers. To get them, call `close`.
    """

    def __init__(
        self,
        clock: "Clock | None" = None,
        *,
        tick_shift: int = 20,
        exact_order: bool = False,
        portion: int = 256,
    ) -> None:
        portion = index(portion)
        if not 1 <= portion <= _MOST_AT_ONCE:
            raise ValueError(f"portion must be between 1 and {_MOST_AT_ONCE}, not {portion}")
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock() if clock is None else clock
        self._portion = portion
        now_ns = self._clock.now_ns()
        self._callbacks = Callbacks(
            self._loop,
            ObjectWheel(now_ns, tick_shift=tick_shift, exact_order=exact_order),
            after=self._after,
            expect=self._expect,
            report=self._report,
        )
        self._batches: Batches[Item] = Batches(
            self._loop,
            ObjectWheel(now_ns, tick_shift=tick_shift, exact_order=exact_order),
            clock=self._clock,
            expect=self._expect,
        )
        self._alarm = self._clock.alarm(self._ring)
        self._alarm_ns = _NEVER_NS
        self._wakeups = 0
        self._failed_callbacks = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        if pending := self.close():
            logger.warning(
                "wheel.closed with %d callbacks and %d items pending",
                len(pending.callbacks),
                len(pending.items),
                extra={
                    "event": "wheel.closed",
                    "callbacks": len(pending.callbacks),
                    "items": len(pending.items),
                },
            )

    def __len__(self) -> int:
        """The number of pending timers, callbacks and items."""
        return len(self._callbacks) + len(self._batches)

    @property
    def closed(self) -> bool:
        return self._closed

    def now_ns(self) -> int:
        """The time of the wheel's clock, on which every `when_ns` is measured."""
        return self._clock.now_ns()

    def stats(self) -> AsyncWheelStats:
        return AsyncWheelStats(
            callbacks=self._callbacks.stats(),
            items=self._batches.stats(),
            wakeups=self._wakeups,
            failed_callbacks=self._failed_callbacks,
        )

    def call_at(
        self,
        when_ns: int,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Timer:
        """Call `callback(*args)` at `when_ns`. Exceptions go to the loop's exception handler.

        It runs in `context`, or by default in the context in which the wheel was created. asyncio
        copies the current context for every timer, which costs a third more. If a callback needs
        the current context, pass `copy_context()`.
        """
        return self._callbacks.add(when_ns, callback, args, context)

    def call_later(
        self,
        delay_s: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Timer:
        """Call `callback(*args)` after `delay_s`. See `call_at`."""
        return self._callbacks.add(self._after(delay_s), callback, args, context)

    def timeout(self, delay_s: float | None) -> Timeout:
        """Cancel the block of an `async with` after `delay_s`.

        The block ends with TimeoutError, like with `asyncio.timeout`. Timeouts nest, also with
        asyncio's, and a cancellation from outside stays a cancellation. None means no limit.
        Closing the wheel removes the limit.
        """
        return self.timeout_at(None if delay_s is None else self._after(delay_s))

    def timeout_at(self, when_ns: int | None) -> Timeout:
        """Cancel the block of an `async with` at `when_ns`. See `timeout`."""
        return Timeout(self._callbacks, self._after, when_ns)

    def add(self, when_ns: int, item: Item) -> int:
        """Hand out `item` by `batches` at `when_ns`. Returns a handle for cancelling it."""
        return self._batches.add(when_ns, item)

    def add_later(self, delay_s: float, item: Item) -> int:
        """Hand out `item` after `delay_s`. See `add`."""
        return self._batches.add(self._after(delay_s), item)

    def add_many(self, whens_ns: "Buffer", items: Sequence[Item]) -> "array[int]":
        """Add many items at once. `whens_ns` is a buffer of int64. Returns their handles."""
        return self._batches.add_many(whens_ns, items)

    def cancel(self, handle: int) -> bool:
        """Cancel an item. Returns False if it was already handed out or cancelled."""
        return self._batches.cancel(handle)

    def reschedule(self, handle: int, when_ns: int) -> bool:
        """Move an item to `when_ns`. Returns False if it was already handed out or cancelled."""
        return self._batches.reschedule(handle, when_ns)

    def batches(self, limit: int = 1024) -> AsyncIterator[list[Item]]:
        """Iterate over batches of at most `limit` due items, until the wheel is closed.

        The consumer sets the pace: an item stays in the wheel until it is in a requested batch.
        Until then it can be cancelled or rescheduled, due or not. With several consumers, each item
        goes to one of them.
        """
        return self._batches.iterate(limit)

    def close(self) -> Pending[Item]:
        """Stop at once, end every iteration of `batches`, and return the pending timers.

        Every later call raises WheelClosed, except `close`, which then returns nothing pending.
        """
        if not self._loop.is_closed():
            check_loop(self._loop)
        if self._closed:
            return Pending([], [])
        self._closed = True
        self._alarm.close()
        return Pending(self._callbacks.close(), self._batches.close())

    def _ring(self) -> None:
        now_ns = self._clock.now_ns()
        self._wakeups += 1
        # Timers that callbacks add need not set the alarm: it is set after this portion.
        self._alarm_ns = 0
        try:
            self._callbacks.call_due(now_ns, self._portion)
        finally:
            self._alarm_ns = _NEVER_NS
            if not self._closed:
                self._batches.wake_consumers(now_ns)
                self._expect(0)

    def _expect(self, when_ns: int) -> None:
        """Set the alarm if it would ring after `when_ns`."""
        if when_ns >= self._alarm_ns:
            return
        expiries = (self._callbacks.next_expiry(), self._batches.next_expiry())
        next_ns = min((expiry for expiry in expiries if expiry is not None), default=_NEVER_NS)
        if next_ns < self._alarm_ns:
            self._alarm.set(next_ns)
            self._alarm_ns = next_ns

    def _after(self, delay_s: float) -> int:
        now_ns = self._clock.now_ns()
        if not isinstance(delay_s, int | float):
            raise TypeError(f"delay_s must be a number of seconds, not {delay_s!r}")
        if not delay_s < _LONGEST_S:
            raise ValueError(f"delay_s must be below {_LONGEST_S:,.0f} seconds, not {delay_s}")
        return now_ns if delay_s <= 0 else now_ns + int(delay_s * _NS_PER_SECOND)

    def _report(self, timer: Timer, callback: Callable[..., object], error: BaseException) -> None:
        self._failed_callbacks += 1
        self._loop.call_exception_handler(
            {
                "message": f"Exception in callback {callback!r} of an AsyncWheel",
                "exception": error,
                "timer": timer,
            }
        )
