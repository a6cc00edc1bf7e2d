"""An experiment: start, load, strike, heal, wait until it is quiet, and ask the checker.

Invariant: a scenario says what is done to the world, and nothing about what is right: that is the
checker's, and the same for all of them.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from msgspec import Struct
from tests.faults.client import each_second_from, every_second, now_us, once_at
from tests.faults.clock_shim import ClockShim
from tests.faults.judge import Observation, Verdict, judge, unavailable
from tests.faults.server import Server
from tests.faults.world import World, new_world

Strike = Callable[[World], Awaitable[None]]
Surround = Callable[[AsyncExitStack], Awaitable[tuple[Server, ClockShim | None]]]
SECOND_US = 1_000_000
MEETING = ("skip", "queue", "cancel")
SCALE = float(os.environ.get("FAULTS_SCALE", "1"))


class NotAvailable(Exception):
    """a fault that cannot be made on this machine, and why"""


class Load(Struct, frozen=True, kw_only=True):
    """What is registered before anything is broken: jobs of each second, and one-offs."""

    beside: int = 24  # every second, one beside the other
    alone: int = 6  # every second, but never two at once
    meeting: int = 6  # every second, at a worker that takes longer: each finds another at work
    spread: int = 0  # each second, but at other moments of it: they tell how long nobody fired
    one_offs: int = 60
    over_s: int = 20
    is_changing: bool = True


class Scenario(Struct, frozen=True, kw_only=True):
    """A fault. `prepare` is done before anything is started; `surround` gives it another server."""

    name: str
    strike: Strike
    shards: int = 2
    load: Load = Load()
    is_short: bool = False
    prepare: Callable[[World], None] = lambda world: None
    surround: Surround | None = None
    limit_s: float = 600
    world: type[World] = World


async def run_experiment(
    scenario: Scenario, server: Server, seed: int = 0, evidence: Path | None = None
) -> Verdict:
    """One scenario from its start to its verdict; if that is *broken*, its logs go to a file."""
    try:
        seen = await observe(scenario, server, seed)
    except NotAvailable as reason:
        return unavailable(scenario.name, str(reason))
    verdict = judge(scenario.name, seen)
    if verdict.broken and evidence is not None:
        evidence.write_bytes(msgspec.json.encode(seen.history))  # noqa: ASYNC240 - nobody waits
    return verdict


async def observe(scenario: Scenario, server: Server, seed: int = 0) -> Observation:
    """What happens in a scenario, without an opinion."""
    async with asyncio.timeout(scenario.limit_s), AsyncExitStack() as stack:
        shim = None
        if scenario.surround is not None:
            server, shim = await scenario.surround(stack)
        world = await stack.enter_async_context(new_world(server, seed, scenario.world))
        world.shim = shim
        scenario.prepare(world)
        await world.open(scenario.shards)
        await register(scenario.load, world)
        await scenario.strike(world)
        healed_us = await world.heal()
        await world.quiesce(healed_us)
        return await world.dump(healed_us)


async def register(load: Load, world: World) -> None:
    """Registers, and waits until it goes round."""
    url, uneven_url = f"{world.worker.url}/ok", f"{world.worker.url}/uneven"
    start_us = now_us() + 2_000_000
    step_us = load.over_s * 1_000_000 // max(load.one_offs, 1)
    jobs = {
        **{f"beside-{n}": every_second(url) for n in range(load.beside)},
        **{f"alone-{n}": every_second(url, "skip") for n in range(load.alone)},
        **{f"meeting-{n}": every_second(uneven_url, MEETING[n % 3]) for n in range(load.meeting)},
        **{
            f"spread-{n}": each_second_from(start_us + n * SECOND_US // load.spread, url)
            for n in range(load.spread)
        },
        **{f"once-{n}": once_at(start_us + n * step_us, url) for n in range(load.one_offs)},
    }
    if jobs:
        await world.clients.create_all(jobs)
    if load.is_changing:
        await world.trickle()
    if load.beside:
        await world.until_arrived(3 * load.beside)
