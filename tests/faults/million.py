"""A million runs without a fault: whatever is wrong with one of them is the product's own doing.

For eight minutes: recurring jobs, each at a millisecond of its own; batches on every second; a
crowd on every tenth second; and ten crowds of one-offs, which are a tenth of everything. A crowd is
as large as a worker that syncs its log takes in a second. Each job has its end, so that it is known
before how many runs there are.
"""

import asyncio
import os
from typing import NamedTuple

from msgspec.structs import replace
from tests.checker.records import Definition, Schedule
from tests.faults.client import now_us
from tests.faults.experiment import Load, NotAvailable, Scenario
from tests.faults.world import World

SECOND_US = 1_000_000
MS = 1_000
RUNS = int(os.environ.get("FAULTS_MILLION", "10000"))
SHARE = min(RUNS / 60_000, 1.0)  # with less than that to do, there are fewer jobs
BULK = 5_000
GRACE_US = 3_600 * SECOND_US  # on a slow machine it is late, and not left out
READY_S = 10  # to load what was registered, and to arm it in time
PERIOD_S = 10
ONCE_CROWDS = 10


class Kind(NamedTuple):
    """Jobs of one kind: how many there are, and how many callbacks go into one request."""

    name: str
    jobs: int
    batch: int


ONCE = Kind("once", RUNS // 10, 200)
CROWD = Kind("crowd", int(10_000 * SHARE), 200)
BATCHED = Kind("batched", int(6_000 * SHARE), 50)
STEADY = Kind("steady", int(200 * SHARE), 1)
RATE = STEADY.jobs + (BATCHED.jobs + CROWD.jobs) // PERIOD_S
FOR_S = max((RUNS - ONCE.jobs) // RATE // PERIOD_S, 1) * PERIOD_S


async def million(world: World) -> None:
    await _register_in(world, READY_S + ONCE.jobs // 1_000, ONCE)
    recurring = CROWD.jobs + BATCHED.jobs + STEADY.jobs
    start_us = await _register_in(world, READY_S + recurring // 2_000, CROWD, BATCHED, STEADY)
    await asyncio.sleep((start_us - now_us()) / SECOND_US + FOR_S)


async def _register_in(world: World, within_s: int, *kinds: Kind) -> int:
    """Registers jobs that begin when all of them are there; gives when that is."""
    start_us = (now_us() // SECOND_US + within_s) // PERIOD_S * PERIOD_S * SECOND_US
    start_us += PERIOD_S * SECOND_US
    for kind in kinds:
        for first in range(0, kind.jobs, BULK):
            numbers = range(first, min(first + BULK, kind.jobs))
            url = f"{world.worker.url}/ok?{kind.name}"
            jobs = {f"{kind.name}-{n}": _definition(kind, n, start_us, url) for n in numbers}
            await world.clients.create_all(jobs, kind.batch)
    if now_us() >= start_us:
        raise NotAvailable(f"{[kind.name for kind in kinds]} not registered in {within_s} s")
    return start_us


def _definition(kind: Kind, number: int, start_us: int, url: str) -> Definition:
    end_us = start_us + FOR_S * SECOND_US - MS
    overlap = "skip" if kind is STEADY and number % 10 == 0 else "allow"
    cron = "*/10 * * * * *" if kind is CROWD else f"{number % 10}-59/10 * * * * *"
    schedule = Schedule(kind="cron", cron=cron, start_us=start_us, end_us=end_us)
    if kind is ONCE:  # each crowd halfway between two others
        after_s = number % ONCE_CROWDS * PERIOD_S + PERIOD_S // 2
        schedule = Schedule(kind="at", at_us=start_us + after_s * SECOND_US)
    elif kind is STEADY:
        own_us = start_us + number * SECOND_US // kind.jobs // MS * MS
        every = {"every_us": SECOND_US, "anchor_us": own_us, "start_us": own_us}
        schedule = replace(schedule, kind="every", cron="", **every)
    return Definition(schedule=schedule, url=url, mark=0, overlap=overlap, grace_us=GRACE_US)  # type: ignore[arg-type] # one of its words


def without_faults(world: World) -> None:
    world.is_faultless = world.is_direct = True


SCENARIOS = [
    Scenario(
        name=f"{'a million' if RUNS == 1_000_000 else f'{RUNS:,} of a million'} runs, no fault",
        strike=million,
        load=Load(beside=0, alone=0, meeting=0, one_offs=0, is_changing=False),
        prepare=without_faults,
        limit_s=900 + 3 * FOR_S,
    )
]
