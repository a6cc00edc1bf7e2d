"""Timeouts like `asyncio.timeout`, with their timers in the wheel.

Invariant: `asyncio.timeout` does the cancellation and its bookkeeping. It has no deadline until the
wheel's timer rings.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from wheelsched.aio._callbacks import Callbacks, Timer


class Timeout:
    """The timeout of one block: see `AsyncWheel.timeout`."""

    def __init__(
        self, callbacks: Callbacks, after: Callable[[float], int], when_ns: int | None
    ) -> None:
        self._callbacks = callbacks
        self._after = after
        self._when_ns = when_ns
        self._block = asyncio.timeout(None)
        self._timer: Timer | None = None

    @property
    def when_ns(self) -> int | None:
        """The deadline, or None."""
        return self._when_ns

    def expired(self) -> bool:
        """Whether this timeout cancelled the block."""
        return self._block.expired()

    def reschedule(self, when_ns: int | None) -> None:
        """Move the deadline to `when_ns`, or remove it. Raises RuntimeError after the block."""
        self._block.reschedule(None)  # it may have expired in this iteration of the loop
        self._set_timer(when_ns)

    def reschedule_later(self, delay_s: float | None) -> None:
        """Move the deadline to `delay_s` from now. See `reschedule`."""
        self.reschedule(None if delay_s is None else self._after(delay_s))

    async def __aenter__(self) -> Self:
        await self._block.__aenter__()
        self._set_timer(self._when_ns)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._drop_timer()
        await self._block.__aexit__(exc_type, exc_val, exc_tb)

    def _set_timer(self, when_ns: int | None) -> None:
        if when_ns is None:
            self._drop_timer()
        elif self._timer is None or not self._timer.reschedule(when_ns):
            self._timer = self._callbacks.add(when_ns, self._ring, (), None)
        self._when_ns = when_ns

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._block.reschedule(asyncio.get_running_loop().time())
