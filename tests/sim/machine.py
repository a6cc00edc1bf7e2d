"""A machine of the simulation: the clock of one process, which can freeze and die.

Invariant: while it is frozen its clock goes on and nothing in its process happens: alarms, answers
and hints wait, and come in their order when it thaws. When it is dead nothing ever comes.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from wheelsched.testing import VirtualClock

MILLION = 1_000_000


class Machine:
    """The `Clock` of one process. `base_ns` is when it was born: no two machines agree on it.

    Nor do they on how long a second is: its clock gains `drift_ppm` parts in a million.
    """

    def __init__(self, clock: VirtualClock, base_ns: int, drift_ppm: int = 0) -> None:
        self._clock = clock
        self._base_ns = base_ns
        self._drift_ppm = drift_ppm
        self._posted: deque[Callable[[], object]] = deque()
        self.is_frozen = False
        self.is_dead = False

    def now_ns(self) -> int:
        lived_ns = self._clock.now_ns() - self._base_ns
        return lived_ns + lived_ns * self._drift_ppm // MILLION

    def alarm(self, ring: Callable[[], object]) -> "MachineAlarm":
        return MachineAlarm(self, self._clock, ring)

    def virtual_ns(self, when_ns: int) -> int:
        """The first instant of the virtual clock at which this one shows `when_ns`."""
        lived_ns = when_ns * MILLION // (MILLION + self._drift_ppm)
        while lived_ns + lived_ns * self._drift_ppm // MILLION < when_ns:
            lived_ns += 1
        return lived_ns + self._base_ns

    async def sleep(self, delay_ns: int) -> None:
        if delay_ns <= 0:
            await asyncio.sleep(0)
            return
        slept = asyncio.Event()
        alarm = self.alarm(slept.set)
        alarm.set(self.now_ns() + delay_ns)
        try:
            await slept.wait()
        finally:
            alarm.close()

    def post(self, callback: Callable[[], object]) -> None:
        """Lets something happen in the process: now, or when it thaws."""
        if self.is_dead:
            return
        if self.is_frozen:
            self._posted.append(callback)
        else:
            callback()

    async def thawed(self) -> None:
        """Returns when the process may go on; never when it is dead."""
        if self.is_frozen or self.is_dead:
            going_on = asyncio.Event()
            self._posted.append(going_on.set)
            await going_on.wait()

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        while self._posted and not self.is_frozen and not self.is_dead:
            self._posted.popleft()()

    def die(self) -> None:
        self.is_dead = True
        self._posted.clear()


class MachineAlarm:
    """An `Alarm` that rings only while its process can hear it."""

    def __init__(self, machine: Machine, clock: VirtualClock, ring: Callable[[], object]) -> None:
        self._machine = machine
        self._ring = ring
        self._number = 0  # of the setting: one that came while frozen may have been set anew
        self._alarm = clock.alarm(self._heard)

    def set(self, when_ns: int) -> None:
        self._number += 1
        self._alarm.set(self._machine.virtual_ns(when_ns))

    def close(self) -> None:
        self._number += 1
        self._alarm.close()

    def _heard(self) -> None:
        number = self._number
        self._machine.post(lambda: self._ring_if(number))

    def _ring_if(self, number: int) -> None:
        if number == self._number:
            self._ring()
