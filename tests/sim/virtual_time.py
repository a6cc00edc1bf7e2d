"""Timers of the loop in virtual time.

Invariant: what the product times with the loop itself, such as `asyncio.timeout`, ends at its time
by the virtual clock, however busy the machine is.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from wheelsched.testing import VirtualClock

NS = 1_000_000_000
AFTER_NS = 1_000  # the loop takes time for a float: at the alarm its timer is due


def keep_virtual_time(clock: VirtualClock) -> Callable[[], None]:
    """Lets the timers of the running loop go by the clock; what is returned ends that."""
    loop: Any = asyncio.get_running_loop()
    call_at = loop.call_at

    def call_virtually(
        when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        clock.alarm(_nothing).set(int(when * NS) + AFTER_NS)
        handle: asyncio.TimerHandle = call_at(when, callback, *args, context=context)
        return handle

    def restore() -> None:
        del loop.time, loop.call_at

    loop.time = lambda: clock.now_ns() / NS
    loop.call_at = call_virtually
    return restore


def _nothing() -> None:
    """The clock only has to stop here: the loop finds its timer."""
