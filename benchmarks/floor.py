"""The floor under lateness: how late a loop that does nothing else is woken on this machine.

python floor.py FILE

Plans a wake-up every few milliseconds until SIGTERM, then writes how late each was, in
microseconds. It runs beside the scheduler, so that both have the same neighbours.
"""

import asyncio
import signal
import sys
from pathlib import Path
from random import Random

import uvloop

from wheelsched.clock import SystemClock


async def measure(path: Path) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    clock, random = SystemClock(), Random(1)
    late_us: list[int] = []
    wanted_ns = 0

    def ring() -> None:
        nonlocal wanted_ns
        now_ns = clock.now_ns()
        if wanted_ns:
            late_us.append((now_ns - wanted_ns) // 1_000)
        wanted_ns = now_ns + random.randrange(2_000_000, 8_000_000)
        alarm.set(wanted_ns)

    alarm = clock.alarm(ring)
    ring()
    await stopped.wait()
    alarm.close()
    path.write_text("\n".join(map(str, late_us)))


if __name__ == "__main__":
    uvloop.run(measure(Path(sys.argv[1])))
