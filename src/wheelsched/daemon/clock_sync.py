"""Keeps the API's clock in sync with the database clock.

Invariant: one reading is in progress at a time, and all callers wait for it. A contradictory
reading is repeated until it is clear whether the clock was stepped.
"""

import asyncio
from typing import Final

import structlog

from wheelsched.clock import DatabaseClock
from wheelsched.core.offset import STEP_SAMPLES
from wheelsched.errors import StoreError
from wheelsched.ports import Clock, LeaseStore

log = structlog.get_logger("wheelsched.daemon")

FRESH_NS: Final = 50_000_000  # since it was sent
SAMPLE_NS: Final = 2_000_000_000
MAX_SAMPLES: Final = 2 * STEP_SAMPLES  # enough even if the clock is stepped again meanwhile


class ClockSync:
    """Feeds readings of the database clock to a `DatabaseClock`."""

    def __init__(self, machine: Clock, clock: DatabaseClock, leases: LeaseStore) -> None:
        self._machine = machine
        self._clock = clock
        self._leases = leases
        self._fresh_until_ns = 0
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Returns once the last reading is fresh, or raises a `StoreError`.

        A reading already in progress may have begun too early; then another follows.
        """
        came_ns = self._machine.now_ns()
        if came_ns < self._fresh_until_ns:
            return
        is_joined = self._is_reading
        await self._wait()
        if is_joined and came_ns >= self._fresh_until_ns:
            await self._wait()

    async def run(self) -> None:
        """Reads every two seconds, for callers that need nothing fresher."""
        while True:
            await self._machine.sleep(SAMPLE_NS)
            try:
                await self._wait()
            except StoreError as error:
                log.warning("clock.read_failed", error=str(error))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    @property
    def _is_reading(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def _wait(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)  # a cancelled caller must not cancel it for the others

    async def _read(self) -> None:
        for _ in range(MAX_SAMPLES):
            sample = await self._leases.read_clock(self._machine.now_ns)
            if self._clock.add_sample(sample):
                log.warning("clock.stepped", offset_us=self._clock.offset_us)
            if not self._clock.is_in_doubt:
                self._fresh_until_ns = sample.sent_ns + FRESH_NS
                return
