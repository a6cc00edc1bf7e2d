"""The way to the database: cut, black-holed, slow, and cut at the worst moment there is."""

import asyncio
from contextlib import nullcontext

from tests.faults.experiment import Load, Scenario, Strike
from tests.faults.world import World
from tests.proxy import Point

VICTIM = "shard-1"
SHARDS = ("shard-1", "shard-2")
HOLE_S = 9.0  # longer than a lease: the other takes over meanwhile
SLOW_S = 10.0
MOMENT_S = 2.0
ROUNDS = 5
UNHEARD_S = 2.0  # after the other has taken over: what is due now is the other's
RENEWALS = 100  # more than a shard tries meanwhile
END_LEASE_CONNECTION = """
SELECT pg_terminate_backend(backend_pid) FROM wheelsched.shards WHERE shard_id = $1
"""


async def cut(world: World) -> None:
    """All connections of everybody, a few times."""
    for _ in range(ROUNDS):
        with world.logbook.fault("store"):
            for proxy in world.proxies.values():
                proxy.cut()
        await world.until_arrived(40)


async def refused(world: World) -> None:
    """One shard can reach nothing for a while, and is told so."""
    proxy = world.proxies[VICTIM]
    with world.logbook.fault("freeze", world.shards[VICTIM].shard_id):
        proxy.is_refusing = True
        proxy.cut()
        await asyncio.sleep(HOLE_S)
        proxy.is_refusing = False
    await world.until_owned(2)
    await world.until_arrived(100)


async def black_holed(world: World) -> None:
    """One shard hears nothing, and what it said arrives after it was taken over."""
    with world.logbook.fault("freeze", world.shards[VICTIM].shard_id):
        world.proxies[VICTIM].hold()
        await world.until_owned(1)
        world.proxies[VICTIM].let_go()
    await world.until_owned(2)
    await world.until_arrived(100)


async def black_holed_for_a_moment(world: World) -> None:
    """One shard hears nothing, for less than a lease: nobody takes it over."""
    with world.logbook.fault("store", world.shards[VICTIM].shard_id):
        world.proxies[VICTIM].hold()
        await asyncio.sleep(MOMENT_S)
        world.proxies[VICTIM].let_go()
    await world.until_owned(2)
    await world.until_arrived(100)


async def black_holed_for_all(world: World) -> None:
    """Nobody hears anything: shards, and the API with the client's requests."""
    with world.logbook.fault("store"):
        for proxy in world.proxies.values():
            proxy.hold()
        await asyncio.sleep(HOLE_S)
        for proxy in world.proxies.values():
            proxy.let_go()
    world.logbook.returns_us.append(world.logbook.faults[-1].until_us)
    await world.until_owned(2)
    await world.until_arrived(100)


async def slowed(world: World) -> None:
    """A round trip of 300 ms."""
    with world.logbook.fault("store"):
        for name in world.shards:
            world.proxies[name].delay_s = 0.15
        await asyncio.sleep(SLOW_S)
        for name in world.shards:
            world.proxies[name].delay_s = 0.0
    await world.until_arrived(100)


async def lease_connection_lost(world: World) -> None:
    """The connection of one shard's lease ends, and nothing that it says on another arrives.

    Everything else goes on: it could fire, and may not.
    """
    proxy, shard_id = world.proxies[VICTIM], world.shards[VICTIM].shard_id
    traps = [proxy.trap("renew", "asked") for _ in range(RENEWALS)]
    await traps[0].spring()
    connection = await world.connect()
    with world.logbook.fault("freeze", shard_id):
        await connection.execute(END_LEASE_CONNECTION, shard_id)
    await connection.close()
    await world.until_owned(1)
    await asyncio.sleep(UNHEARD_S)
    proxy.heal()
    for trap in traps:
        trap.freed.set()
    await world.until_owned(2)
    await world.until_arrived(100)


def cut_at_commit(statement: str, point: Point, names: tuple[str, ...] = SHARDS) -> Strike:
    """The statement has been sent, or done, and its answer never comes."""

    async def strike(world: World) -> None:
        for _ in range(ROUNDS):
            for name in names:
                await cut_when(world, name, statement, point)
        await world.until_arrived(100)

    return strike


async def cut_when(world: World, name: str, statement: str, point: Point) -> None:
    """Cuts one process off at its next statement of that kind. The API is nobody's excuse."""
    trap = world.proxies[name].trap(statement, point)
    await trap.spring()
    shard = world.shards.get(name)
    with world.logbook.fault("store", shard.shard_id) if shard else nullcontext():
        world.proxies[name].cut()
        trap.freed.set()


LONG = Load(over_s=35, one_offs=90)

SCENARIOS = [
    Scenario(name="connections cut", strike=cut),
    Scenario(name="one shard refused by Postgres for 9 s", strike=refused, load=LONG),
    Scenario(name="one shard black-holed until taken over", strike=black_holed, load=LONG),
    Scenario(name="the lease connection of one shard lost", strike=lease_connection_lost),
    Scenario(name="one shard black-holed for 2 s", strike=black_holed_for_a_moment),
    Scenario(name="all black-holed for 9 s", strike=black_holed_for_all, load=LONG),
    Scenario(name="connections slowed to 300 ms", strike=slowed, load=LONG),
    Scenario(name="cut when the commit of an arm was sent", strike=cut_at_commit("arm", "sent")),
    Scenario(
        name="cut when an arm had committed",
        strike=cut_at_commit("arm", "answered"),
        is_short=True,
    ),
    Scenario(name="cut when a settle had committed", strike=cut_at_commit("settle", "answered")),
    Scenario(name="cut when any write had committed", strike=cut_at_commit("write", "answered")),
    Scenario(
        name="the API cut when the commit of a change was sent",
        strike=cut_at_commit("change", "sent", ("api",)),
    ),
]
