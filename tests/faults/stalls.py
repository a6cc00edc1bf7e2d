"""A machine that stalls: a fault that nobody ordered, noted so that nobody else is blamed for it.

Two looks, a few times a second: how late this process itself wakes up, and how long a small write
takes to be on disk. What takes longer than the margin of a lease may keep a shard from renewing it.
"""

import asyncio
import os
from pathlib import Path

from tests.faults.client import now_us
from tests.faults.logbook import Logbook

INTERVAL_S = 0.2
STALL_US = 500_000


async def note_stalls(logbook: Logbook, directory: Path) -> None:
    """Until it is cancelled."""
    with (directory / "stalls").open("wb", buffering=0) as file:
        await asyncio.gather(_note_late_wakeups(logbook), _note_slow_writes(logbook, file.fileno()))


async def _note_late_wakeups(logbook: Logbook) -> None:
    while True:
        from_us = now_us()
        await asyncio.sleep(INTERVAL_S)
        if now_us() - from_us > STALL_US + int(INTERVAL_S * 1_000_000):
            logbook.stalled("freeze", from_us)


async def _note_slow_writes(logbook: Logbook, file: int) -> None:
    while True:
        from_us = now_us()
        os.pwrite(file, b".", 0)  # never more than a byte: the disk may be full on purpose
        await asyncio.to_thread(os.fdatasync, file)
        if now_us() - from_us > STALL_US:
            logbook.stalled("store", from_us)
        await asyncio.sleep(INTERVAL_S)
