"""Shards that die, by how their death becomes known: from a parent, a connection, or not at all.

A death is known at once when a parent has waited for its shard, or when the connections of the
shard have ended. When a machine loses its power, nobody is told: then the lease expires.
"""

from tests.faults.experiment import Load, Scenario
from tests.faults.processes import LoneShard, Supervisor
from tests.faults.variants import CertifiedShard, HungryShard
from tests.faults.world import World

VICTIM = "shard-1"
SPREAD = Load(spread=40)


async def shard_killed(world: World) -> None:
    await world.kill(VICTIM)
    await _see(world)


async def parent_killed(world: World) -> None:
    """The process that the user started: its shard exits, and only its connections tell."""
    with world.crash(VICTIM) as shard:
        await shard.kill_parent()
    await _see(world)


async def all_killed(world: World) -> None:
    """As a container ends, or a kernel that kills a group of processes for want of memory."""
    with world.crash(VICTIM) as shard:
        await shard.kill()
    await _see(world)


async def one_of_several_killed(world: World) -> None:
    """Its supervisor sees it, and starts another."""
    await world.kill_one(VICTIM)
    await world.until_owned(3)
    await world.until_arrived(100)


async def starved(world: World) -> None:
    """It takes memory until there is none left for it."""
    with world.crash(VICTIM) as shard:
        assert isinstance(shard, HungryShard)
        await shard.starve()
    await _see(world)


async def power_lost(world: World) -> None:
    await world.lose_power(VICTIM, world.until_owned(1))
    await world.until_arrived(100)


async def _see(world: World) -> None:
    """The other one takes over, and goes on."""
    await world.until_owned(1)
    await world.until_arrived(100)


def lone(world: World) -> None:
    world.shard_type = LoneShard


def certified_only(world: World) -> None:
    world.shard_type = CertifiedShard


def supervised(world: World) -> None:
    world.shard_types[VICTIM] = Supervisor


def hungry(world: World) -> None:
    world.shard_types[VICTIM] = HungryShard


SCENARIOS = [
    Scenario(name="death: kill -9 of a shard", strike=shard_killed, load=SPREAD),
    Scenario(
        name="death: kill -9, known from the parent alone",
        strike=shard_killed,
        prepare=certified_only,
        load=SPREAD,
        is_short=True,
    ),
    Scenario(
        name="death: kill -9, known from the connection alone",
        strike=shard_killed,
        prepare=lone,
        load=SPREAD,
        is_short=True,
    ),
    Scenario(name="death: kill -9 of the parent", strike=parent_killed, load=SPREAD),
    Scenario(name="death: kill -9 of shard and parent together", strike=all_killed, load=SPREAD),
    Scenario(
        name="death: kill -9 of one of a supervisor's shards",
        strike=one_of_several_killed,
        prepare=supervised,
        load=SPREAD,
    ),
    Scenario(
        name="death: kill -9 of a supervisor",
        strike=parent_killed,
        prepare=supervised,
        load=SPREAD,
    ),
    Scenario(
        name="death: kill -9 of a supervisor with its shards",
        strike=all_killed,
        prepare=supervised,
        load=SPREAD,
    ),
    Scenario(name="death: out of memory", strike=starved, prepare=hungry, load=SPREAD),
    Scenario(name="death: power lost", strike=power_lost, load=SPREAD),
]
