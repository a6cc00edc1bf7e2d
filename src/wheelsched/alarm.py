"""Alarms on a running loop, by timerfd or by the loop's own timers.

Invariant: an alarm never rings early. After an early wake-up (libuv floors its clock, so a third of
them are early on uvloop), the alarm waits again, or spins if its owner allows it, and then rings.

A timerfd is more precise: the kernel wakes the loop at the nanosecond, while asyncio rounds up to a
millisecond. It exists only on Linux.
"""

import asyncio
import ctypes
import os
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context

_NS_PER_SECOND = 1_000_000_000


class LoopAlarm(ABC):
    """The base of both alarms: it wakes up `spin_ns` early and spins for the rest."""

    def __init__(
        self, ring: Callable[[], object], *, now_ns: Callable[[], int], spin_ns: int = 0
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._ring = ring
        self._now_ns = now_ns
        self._spin_ns = spin_ns
        self._when_ns = 0

    def set(self, when_ns: int) -> None:
        self._when_ns = when_ns
        self._plan_wake(when_ns - self._spin_ns)

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _plan_wake(self, wake_ns: int) -> None:
        """Call `_wake` at about `wake_ns`. This replaces the previous plan."""

    def _wake(self) -> None:
        when_ns = self._when_ns
        try:
            if when_ns - self._now_ns() > self._spin_ns:
                self._plan_wake(when_ns - self._spin_ns)
                return
            while self._now_ns() < when_ns:
                pass
        except BaseException:  # an interrupt in the spin must not silence the alarm forever
            self._plan_wake(when_ns - self._spin_ns)
            raise
        self._ring()


class CallAtAlarm(LoopAlarm):
    """An alarm by the loop's own timers: portable, and as precise as the loop."""

    _planned: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._planned is not None:
            self._planned.cancel()

    def _plan_wake(self, wake_ns: int) -> None:
        self.close()
        delay_ns = max(0, wake_ns - self._now_ns())
        # The loop's clock may not count suspended time, so pass it only the difference.
        wake_s = self._loop.time() + delay_ns / _NS_PER_SECOND
        self._planned = self._loop.call_at(wake_s, self._wake, context=self._context)


class TimerfdAlarm(LoopAlarm):
    """An alarm by a kernel timer on CLOCK_BOOTTIME. Raises OSError if there is none."""

    def __init__(
        self, ring: Callable[[], object], *, now_ns: Callable[[], int], spin_ns: int = 0
    ) -> None:
        super().__init__(ring, now_ns=now_ns, spin_ns=spin_ns)
        self._descriptor = _timerfd_create()
        try:
            self._loop.add_reader(self._descriptor, self._read)
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            warnings.warn(f"unclosed alarm {self!r}", ResourceWarning, stacklevel=2, source=self)
            os.close(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _plan_wake(self, wake_ns: int) -> None:
        # Zero would disable the timer. Any other time in the past wakes at once.
        _timerfd_set(self._descriptor, max(1, wake_ns))

    def _read(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return  # set again since the loop polled, so this wake-up is void
        self._wake()


if sys.platform != "linux":

    def _timerfd_create() -> int:
        raise OSError("timerfd is Linux only")

    def _timerfd_set(descriptor: int, when_ns: int) -> None:
        raise OSError("timerfd is Linux only")

elif sys.version_info >= (3, 13):

    def _timerfd_create() -> int:
        return os.timerfd_create(time.CLOCK_BOOTTIME, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

    def _timerfd_set(descriptor: int, when_ns: int) -> None:
        os.timerfd_settime_ns(descriptor, flags=os.TFD_TIMER_ABSTIME, initial=when_ns)

else:
    _TFD_TIMER_ABSTIME = 1

    class _TimeSpec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    class _TimerSpec(ctypes.Structure):
        _fields_ = (("interval", _TimeSpec), ("initial", _TimeSpec))

    _libc = ctypes.CDLL(None, use_errno=True)

    def _checked(returned: int) -> int:
        if returned < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return returned

    def _timerfd_create() -> int:
        # timerfd.h defines its flags as these two of open().
        return _checked(_libc.timerfd_create(time.CLOCK_BOOTTIME, os.O_NONBLOCK | os.O_CLOEXEC))

    def _timerfd_set(descriptor: int, when_ns: int) -> None:
        spec = _TimerSpec(initial=_TimeSpec(*divmod(when_ns, _NS_PER_SECOND)))
        _checked(_libc.timerfd_settime(descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None))
