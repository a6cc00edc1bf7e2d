"""Workers that pull: killed or frozen with runs in hand; and the way to them, cut or black-holed.

In each of them some runs are held by the workers that have them, with heartbeats, and others come
every second and are done at once.
"""

import asyncio

from msgspec.structs import replace
from tests.checker.records import Definition
from tests.faults.client import every_second, now_us, once_at
from tests.faults.experiment import Load, Scenario
from tests.faults.queue_world import PULLERS, QueueWorld
from tests.faults.world import World

VICTIM = PULLERS[0]
SECOND_US = 1_000_000
HELD = 16
LOAD = Load(beside=6, alone=2, meeting=0, one_offs=10, is_changing=False)
WITHIN_US = 3_600 * SECOND_US
HOLE_S = 9.0  # longer than a link waits for a keep-alive
CUTS = 5


def queued(definition: Definition, queue: str) -> Definition:
    """The same job, whose runs wait in a queue."""
    return replace(definition, url=f"queue:{queue}", queue=queue, claim_within_us=WITHIN_US)


async def begin(world: World) -> QueueWorld:
    """Workers, runs that they hold, and runs that come every second."""
    assert isinstance(world, QueueWorld)
    await asyncio.gather(*(world.start_puller(name) for name in PULLERS))
    due_us = now_us() + 2 * SECOND_US
    held = once_at(due_us, "", max_attempts=8)
    await world.clients.create_all({f"held-{n}": queued(held, "hold") for n in range(HELD)})
    quick = {f"quick-{n}": queued(every_second(""), "quick") for n in range(10)}
    alone = {f"alone-q-{n}": queued(every_second("", "skip"), "quick") for n in range(4)}
    await world.clients.create_all(quick | alone)
    await world.until_pulled("hold", HELD)
    return world


async def worker_killed(world: World) -> None:
    """Another has its runs when their lease is over, and not before."""
    pulling = await begin(world)
    in_hand = pulling.pullers[VICTIM].count("hold")
    with world.logbook.fault("worker"):
        await pulling.pullers[VICTIM].kill()
        await _see_again(pulling, in_hand)
    await pulling.until_pulled("quick", 100)


async def worker_frozen(world: World) -> None:
    """It sleeps past its lease, and says how its runs ended when others have them."""
    pulling = await begin(world)
    in_hand = pulling.pullers[VICTIM].count("hold")
    with world.logbook.fault("worker"):
        await pulling.freeze_puller(VICTIM, _see_again(pulling, in_hand))
    await pulling.until_pulled("quick", 100)


async def _see_again(world: QueueWorld, in_hand: int) -> None:
    """The runs of a worker come to another one."""
    began_us = now_us()
    await world.until_pulled("hold", in_hand)
    world.again_us = now_us() - began_us
    took_s = world.again_us / SECOND_US
    world.remarks.append(f"{in_hand} runs in hand, all at another worker after {took_s:.1f} s")


async def api_killed(world: World) -> None:
    """The workers go on with what they have, and connect again."""
    pulling = await begin(world)
    for _ in range(3):
        with world.logbook.fault("api"):
            await world.kill_api()
            await pulling.until_pulled("quick", 20)
    await pulling.until_pulled("quick", 100)


async def links_cut(world: World) -> None:
    pulling = await begin(world)
    for _ in range(CUTS):
        with world.logbook.fault("link"):
            for proxy in pulling.links.values():
                proxy.cut()
            await pulling.until_pulled("quick", 20)
    await pulling.until_pulled("quick", 100)


async def links_black_holed(world: World) -> None:
    """What was handed out into the hole comes again when its delivery lease is over."""
    pulling = await begin(world)
    with world.logbook.fault("link"):
        for proxy in pulling.links.values():
            proxy.hold()
        await asyncio.sleep(HOLE_S)
        for proxy in pulling.links.values():
            proxy.let_go()
        await pulling.until_pulled("quick", 20)
    await pulling.until_pulled("quick", 100)


async def shard_killed(world: World) -> None:
    """The other one waits for the workers that may have its runs."""
    pulling = await begin(world)
    await world.kill("shard-1")
    await world.until_owned(1)
    await pulling.until_pulled("quick", 200)


async def all_of_it(world: World) -> None:
    """One after the other: the links, the API, a worker, a shard."""
    pulling = await begin(world)
    for proxy in pulling.links.values():
        proxy.cut()
    await world.kill_api()
    with world.logbook.fault("worker"):
        await pulling.pullers[VICTIM].kill()
        await pulling.start_puller(VICTIM)
    await world.kill("shard-1")
    await world.until_owned(1)
    await pulling.until_pulled("quick", 200)


SCENARIOS = [
    Scenario(name=f"queue: {name}", strike=strike, load=LOAD, world=QueueWorld, is_short=is_short)
    for name, strike, is_short in (
        ("kill -9 of a worker with runs in hand", worker_killed, True),
        ("a worker frozen past its lease", worker_frozen, False),
        ("kill -9 of the API with runs in hand", api_killed, False),
        ("links cut", links_cut, False),
        ("links black-holed for 9 s", links_black_holed, False),
        ("kill -9 of a shard with runs in hand", shard_killed, False),
        ("links, API, worker and shard", all_of_it, False),
    )
]
