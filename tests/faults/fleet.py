"""The fleet: a hot second while a shard dies, shards that come and go, a host whose clock jumps."""

import asyncio
import os
from datetime import datetime
from pathlib import Path

from tests.faults.client import now_us, once_at
from tests.faults.clock_shim import ClockShim
from tests.faults.experiment import Load, NotAvailable, Scenario
from tests.faults.world import World
from tests.waiting import WAIT_LIMIT_S

SECOND_US = 1_000_000
HOT_JOBS = int(os.environ.get("FAULTS_HOT", "5000"))
BULK = 5_000
VICTIM = "shard-1"
GUEST = "guest"
VISITS = 4
VISIT_S = 5.0
JUMP_US = 3_600 * SECOND_US


def without_proxies(world: World) -> None:
    """The shards talk to Postgres directly: a proxy in Python would be slower than they are."""
    world.is_direct = True


async def hot_second(world: World) -> None:
    """Many jobs on one second; a shard dies when the first of them has arrived."""
    ahead_s = 6 + HOT_JOBS // 1_000  # to register them, and to arm them in time
    due_us = now_us() // SECOND_US * SECOND_US + ahead_s * SECOND_US
    url = f"{world.other.url}/ok"
    for start in range(0, HOT_JOBS, BULK):
        numbers = range(start, min(start + BULK, HOT_JOBS))
        batch = 200 if start else 1  # a worker of one process takes single requests slowly
        jobs = {f"hot-{n}": once_at(due_us, f"{url}?{batch}") for n in numbers}
        await world.clients.create_all(jobs, batch)
    if now_us() >= due_us:
        raise NotAvailable(f"{HOT_JOBS:,} jobs could not be registered in {ahead_s} s")
    await world.other.until_received("/ok?1")
    await world.kill(VICTIM)
    await world.until_owned(1)
    last_us = await _last_of(world, HOT_JOBS)
    world.crowd_us = last_us - due_us
    world.remarks.append(f"everything out {world.crowd_us / SECOND_US:.1f} s after the second")
    await world.until_arrived(100)


async def _last_of(world: World, jobs: int) -> int:
    """When the last of the hot jobs arrived for the first time.

    The records are read when so many have arrived, and not all the time: that would slow down what
    is measured.
    """
    first_us: dict[str, int] = {}
    hot = f'"url":"{world.other.url}/ok?'.encode()
    async with asyncio.timeout(WAIT_LIMIT_S):
        while len(first_us) < jobs:
            await asyncio.sleep(1)
            if world.other.records.count(hot) < jobs:
                continue
            for arrival in await asyncio.to_thread(world.other.records.read):
                if "/ok?" in arrival.url:
                    first_us.setdefault(arrival.job, arrival.at_us)
    return max(first_us.values())


async def comings_and_goings(world: World) -> None:
    """A shard joins, and leaves again after five seconds; nobody notices."""
    for _ in range(VISITS):
        with world.logbook.fault("join"):
            await world.start_shard(GUEST)
            await world.until_owned(2)
        await asyncio.sleep(VISIT_S)
        await world.stop(GUEST)
        await world.until_owned(1)
        await asyncio.sleep(VISIT_S)


def with_a_host_clock(world: World) -> None:
    if not ClockShim.is_available():
        raise NotAvailable("no C compiler to build the library that moves a clock")
    world.host_shim = ClockShim(world.directory)
    world.shard_environment |= world.host_shim.environment


async def host_clock_jumps(world: World) -> None:
    """An hour ahead, and an hour back: nothing happens, for nobody reads it."""
    assert world.host_shim is not None
    for offset_us in (JUMP_US, -JUMP_US):
        world.host_shim.set(offset_us)
        await world.until_arrived(150)
    await world.stop(VICTIM)
    stamped = _last_stamp(world.shards[VICTIM].log)
    world.require(
        abs(stamped - now_us() + JUMP_US) < 600 * SECOND_US,
        "its log is not stamped by the moved clock: the clock was not moved",
    )


def _last_stamp(log: Path) -> int:
    """When a shard thinks that it wrote its last line."""
    line = log.read_text().splitlines()[-1]
    _, _, rest = line.partition('"timestamp": "')
    if not rest:
        _, _, rest = line.partition('"timestamp":"')
    return int(datetime.fromisoformat(rest.partition('"')[0]).timestamp() * 1_000_000)


SCENARIOS = [
    Scenario(
        name=f"{HOT_JOBS:,} jobs on one second while a shard dies",
        strike=hot_second,
        prepare=without_proxies,
        load=Load(is_changing=False),
    ),
    Scenario(
        name="a shard joins and leaves every 5 s",
        strike=comings_and_goings,
        shards=1,
        load=Load(over_s=60, one_offs=120),
    ),
    Scenario(
        name="host clock jumps by ±1 h",
        strike=host_clock_jumps,
        prepare=with_a_host_clock,
    ),
]
