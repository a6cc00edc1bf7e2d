"""Timeouts of blocks: `asyncio.timeout`, whose timer is in the wheel.

Invariant: cancelling and its accounting are asyncio's own. The wheel only tells when: the timeout
that cancels the block has no deadline of its own until the wheel's timer rings.
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
        """The deadline, None when there is none."""
        return self._when_ns

    def expired(self) -> bool:
        """Return whether the block was cancelled by this timeout."""
        return self._block.expired()

    def reschedule(self, when_ns: int | None) -> None:
        """Cancel the block at `when_ns` instead, or not at all. RuntimeError once it is over."""
        self._block.reschedule(None)  # it may have been told already, in this turn of the loop
        self._set_timer(when_ns)

    def reschedule_later(self, delay_s: float | None) -> None:
        """Cancel the block in `delay_s` from now instead: see `reschedule`."""
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
