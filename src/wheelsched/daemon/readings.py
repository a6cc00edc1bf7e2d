"""How the API follows the database's clock.

Invariant: one reading is under way at a time, and whoever wants one meanwhile waits for it. A
reading that contradicts what is known is repeated until it is clear which of them is right: a step
of the clock is known when a reading is over, and not two readings later.
"""

import asyncio
from typing import Final

import structlog

from wheelsched.clock import DatabaseClock
from wheelsched.core.offset import STEP_SAMPLES
from wheelsched.errors import StoreError
from wheelsched.ports import Clock, LeaseStore

log = structlog.get_logger("wheelsched.daemon")

FRESH_NS: Final = 50_000_000  # from when it was sent
SAMPLE_NS: Final = 2_000_000_000
SAMPLES_AT_MOST: Final = 2 * STEP_SAMPLES  # enough if the clock is set once more meanwhile


class ClockReadings:
    """Readings of the database's clock, for a `DatabaseClock` on top of `machine`."""

    def __init__(self, machine: Clock, clock: DatabaseClock, leases: LeaseStore) -> None:
        self._machine = machine
        self._clock = clock
        self._leases = leases
        self._fresh_until_ns = 0
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Return when the last reading is fresh; a `StoreError` when there is none to be had.

        A reading that was under way may be of before: then there is another.
        """
        came_ns = self._machine.now_ns()
        if came_ns < self._fresh_until_ns:
            return
        is_joined = self._is_reading
        await self._wait()
        if is_joined and came_ns >= self._fresh_until_ns:
            await self._wait()

    async def keep_up(self) -> None:
        """Read every two seconds, for those who need it no fresher."""
        while True:
            await self._machine.sleep(SAMPLE_NS)
            try:
                await self._wait()
            except StoreError as error:
                log.warning("clock.unread", error=str(error))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    @property
    def _is_reading(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def _wait(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)  # who goes away takes it from nobody else

    async def _read(self) -> None:
        for _ in range(SAMPLES_AT_MOST):
            sample = await self._leases.read_clock(self._machine.now_ns)
            if self._clock.add_sample(sample):
                log.warning("clock.stepped", offset_us=self._clock.offset_us)
            if not self._clock.is_in_doubt:
                self._fresh_until_ns = sample.sent_ns + FRESH_NS
                return
