"""What is done to a cluster: its primary fails in every way, and the database goes back in time."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from msgspec import Struct
from tests.faults.experiment import Load
from tests.ha import restores
from tests.ha.cluster import Replication
from tests.ha.node import Node
from tests.ha.world import HaWorld

LOAD = Load(beside=100, alone=8, meeting=6, one_offs=120, over_s=60)
ARRIVALS = 1_000  # of a hundred jobs each second: some seconds
LAG_S = 7.0
GUEST = "shard-3"
SLEEPER = "shard-1"


class Failover(Struct, frozen=True, kw_only=True):
    """A scenario. The primary stands first in the URL, unless it says otherwise."""

    name: str
    strike: Callable[[HaWorld], Awaitable[None]]
    replication: Replication
    shards: int = 2
    is_short: bool = False
    limit_s: float = 420


async def killed(world: HaWorld) -> None:
    """`kill -9` of Postgres and of its Patroni; it comes back as a standby."""
    victim = await world.cluster.the_primary()
    async with world.failover(victim):
        victim.kill()
    await world.until_arrived(ARRIVALS)
    await victim.start()
    await world.cluster.until_whole()


async def switched_over(world: HaWorld) -> None:
    """A planned change of roles."""
    victim = await world.cluster.the_primary()
    candidate = await _in_step(world)
    async with world.failover(victim, is_planned=True):
        await victim.switch_over(candidate.name)
    await world.until_arrived(ARRIVALS)


async def frozen(world: HaWorld) -> None:
    """The machine of the primary stops, its connections stay open; it wakes as a standby."""
    victim = await world.cluster.the_primary()
    async with world.failover(victim):
        victim.freeze()
    await world.until_arrived(ARRIVALS)
    victim.wake()
    await world.cluster.until_whole()


async def isolated(world: HaWorld) -> None:
    """The network to the primary and from it is a black hole until another one is there."""
    victim = await world.cluster.the_primary()
    async with world.failover(victim):
        victim.isolate()
    await world.until_arrived(ARRIVALS)
    victim.rejoin()
    await world.cluster.until_whole()


async def standby_hangs(world: HaWorld) -> None:
    """The first host of the URL accepts connections and says nothing, while all connect anew."""
    primary = await world.cluster.the_primary()
    idle = await _out_of_step(world)
    world.first = idle.name
    for name in list(world.shards):
        await world.stop(name)
        await world.start_shard(name)
    await world.until_owned(2)
    idle.freeze()
    with world.logbook.fault("store"):
        primary.tunnels["clients"].cut()
    world.logbook.returns_us.append(world.logbook.faults[-1].until_us)
    await world.until_arrived(ARRIVALS)
    idle.wake()


async def went_back(world: HaWorld) -> None:
    """The standbys lag by some seconds, and the primary dies."""
    victim = await _lagging(world)
    await asyncio.sleep(LAG_S)
    await _lose(world, victim)
    await world.until_arrived(ARRIVALS)
    world.require_noticed()


async def went_back_after_a_join(world: HaWorld) -> None:
    """The standbys lag by some seconds, in which a shard has joined; then the primary dies."""
    victim = await _lagging(world)
    await world.start_shard(GUEST)
    await world.until_owned(3)
    await asyncio.sleep(LAG_S)
    await _lose(world, victim)
    await world.until_owned(3)
    await world.until_arrived(ARRIVALS)
    world.require_noticed(besides=GUEST)  # its lease is forgotten, as if it had been taken over
    await world.require_told()


async def went_back_and_woke(world: HaWorld) -> None:
    """A frozen shard is taken over in the seconds that are lost, and wakes afterwards."""
    sleeper = world.shards[SLEEPER]
    await world.cluster.until_caught_up()
    with world.logbook.fault("freeze", sleeper.shard_id):
        sleeper.signal_shards(signal.SIGSTOP)
        victim = await _lagging(world)
        await world.until_owned(1)
        await asyncio.sleep(LAG_S)
        await _lose(world, victim)
        await world.until_arrived(ARRIVALS)
        sleeper.signal_shards(signal.SIGCONT)
    await world.until_owned(2)
    await world.until_arrived(ARRIVALS)


async def _lagging(world: HaWorld) -> Node:
    """From now on nothing of what the primary writes reaches a standby; gives the primary."""
    victim = await world.cluster.the_primary()
    await world.cluster.until_caught_up()
    victim.tunnels["replication"].hold()
    return victim


async def _lose(world: HaWorld, victim: Node) -> None:
    """Kills a primary whose standbys lag, and keeps in mind what only it knew.

    Another one is there so soon that no lease has ended meanwhile.
    """
    async with world.failover(victim):
        victim.kill()
        await world.cluster.expire()
    victim.tunnels["replication"].let_go()
    await world.read_lost_of(victim)


async def _in_step(world: HaWorld) -> Node:
    """A standby that may become the primary: with synchronous replication the one in step."""
    primary = await world.cluster.the_primary()
    name = await primary.ask(
        "SELECT application_name FROM pg_stat_replication"
        " ORDER BY sync_state IN ('sync', 'quorum') DESC LIMIT 1"
    )
    return world.cluster.nodes[str(name)]


async def _out_of_step(world: HaWorld) -> Node:
    """A standby that nobody waits for."""
    standbys, needed = await world.cluster.standbys(), await _in_step(world)
    return next(node for node in standbys if node is not needed)


SYNCHRONOUS: Replication = "synchronous"
ASYNCHRONOUS: Replication = "asynchronous"
BOTH = (SYNCHRONOUS, ASYNCHRONOUS)

SCENARIOS = [
    *(
        Failover(name=name, strike=strike, replication=replication, is_short=is_short)
        for name, strike, short in (
            ("primary killed (-9)", killed, SYNCHRONOUS),
            ("switchover", switched_over, None),
            ("primary frozen until demoted", frozen, None),
            ("network to the primary cut", isolated, None),
            ("the standby that is first in the URL hangs", standby_hangs, None),
        )
        for replication in BOTH
        for is_short in (replication == short,)
    ),
    Failover(name="WAL lost", strike=went_back, replication=ASYNCHRONOUS),
    Failover(
        name="WAL lost, a shard had joined",
        strike=went_back_after_a_join,
        replication=ASYNCHRONOUS,
        is_short=True,
    ),
    Failover(
        name="WAL lost, a shard that was taken over wakes",
        strike=went_back_and_woke,
        replication=ASYNCHRONOUS,
    ),
    Failover(name="restored from a dump", strike=restores.from_a_dump, replication=SYNCHRONOUS),
    Failover(
        name="restored from a base backup",
        strike=restores.from_a_base_backup,
        replication=SYNCHRONOUS,
    ),
]
