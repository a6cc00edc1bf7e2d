"""A soak: faults of every family in an order that a seed decides, for as long as is asked for."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from tests.faults.experiment import Load, Scenario
from tests.faults.network import cut_when
from tests.faults.world import World
from tests.proxy import Point

SOAK_S = float(os.environ.get("FAULTS_SOAK", "180"))
REST_S = (1.0, 6.0)
POINTS: tuple[Point, ...] = ("sent", "answered")
SHARDS = ("shard-1", "shard-2", "shard-3")

Fault = Callable[[World, str], Awaitable[None]]


async def kill_and_start(world: World, name: str) -> None:
    await world.kill(name)
    await asyncio.sleep(world.random.uniform(0, 8))
    await world.start_shard(name)


async def stop_and_start(world: World, name: str) -> None:
    await world.stop(name)
    await world.start_shard(name)


async def freeze(world: World, name: str) -> None:
    await world.freeze(name, world.random.choice([0.5, 2, 4, 9]))


async def cut(world: World, name: str) -> None:
    with world.logbook.fault("store", world.shards[name].shard_id):
        world.proxies[name].cut()


async def cut_everybody(world: World, name: str) -> None:
    with world.logbook.fault("store"):
        for proxy in world.proxies.values():
            proxy.cut()


async def hold(world: World, name: str) -> None:
    with world.logbook.fault("freeze", world.shards[name].shard_id):
        world.proxies[name].hold()
        await asyncio.sleep(world.random.uniform(1, 9))
        world.proxies[name].let_go()


async def slow(world: World, name: str) -> None:
    with world.logbook.fault("store", world.shards[name].shard_id):
        world.proxies[name].delay_s = world.random.uniform(0.01, 0.15)
        await asyncio.sleep(world.random.uniform(2, 6))
        world.proxies[name].delay_s = 0.0


async def cut_at_commit(world: World, name: str) -> None:
    statement = world.random.choice(("arm", "settle", "write"))
    await cut_when(world, name, statement, world.random.choice(POINTS))


async def kill_postgres(world: World, name: str) -> None:
    with world.outage():
        await world.server.kill()
        await asyncio.sleep(world.random.choice([0, 0, 2, 7]))
        await world.server.start()


FAULTS: tuple[Fault, ...] = (
    *(kill_and_start, kill_and_start, stop_and_start, freeze, freeze),
    *(cut, cut_everybody, hold, slow, cut_at_commit, cut_at_commit, kill_postgres),
)


def soak(for_s: float) -> Callable[[World], Awaitable[None]]:
    async def strike(world: World) -> None:
        until = time.monotonic() + for_s
        count = 0
        while time.monotonic() < until:
            fault = world.random.choice(FAULTS)
            name = world.random.choice([name for name in SHARDS if name in world.shards])
            await fault(world, name)
            await asyncio.sleep(world.random.uniform(*REST_S))
            count += 1
        world.remarks.append(f"{count} faults")
        await world.until_owned(len(world.shards))
        await world.until_arrived(100)

    return strike


SCENARIO = Scenario(
    name=f"soak of mixed faults, {SOAK_S:.0f} s",
    strike=soak(SOAK_S),
    load=Load(beside=12, alone=6, one_offs=int(2 * SOAK_S), over_s=int(SOAK_S)),
    limit_s=SOAK_S + 600,
)
