"""Shards that are killed: in each window in which a crash could lose or double something.

Each is killed when an event says that it is in the window: a statement that comes by the proxy, or
a callback that came to a worker which does not answer.
"""

from tests.faults.client import every_second, now_us, once_at
from tests.faults.experiment import Scenario
from tests.faults.world import World

VICTIM = "shard-1"
SECOND_US = 1_000_000


async def before_the_arm_commits(world: World) -> None:
    trap = world.proxies[VICTIM].trap("arm", "asked")
    await trap.spring()
    await _kill_and_see(world)


async def armed_and_not_sent(world: World) -> None:
    trap = world.proxies[VICTIM].trap("arm", "answered")
    await trap.spring()
    await _kill_and_see(world)


async def sent_and_not_answered(world: World) -> None:
    """Every job has a run at a worker that holds its answers, wherever it is owned."""
    url = f"{world.other.url}/hold"
    due_us = now_us() + 2 * SECOND_US
    await world.clients.create_all({f"held-{n}": once_at(due_us, url) for n in range(16)})
    await world.clients.create_all({f"holding-{n}": every_second(url) for n in range(4)})
    await world.other.until_received("/hold", 16)
    await _kill_and_see(world)


async def answered_and_not_settled(world: World) -> None:
    trap = world.proxies[VICTIM].trap("settle", "asked")
    await trap.spring()
    await _kill_and_see(world)


async def settled_and_not_told(world: World) -> None:
    trap = world.proxies[VICTIM].trap("settle", "answered")
    await trap.spring()
    await _kill_and_see(world)


async def at_any_moment(world: World) -> None:
    await _kill_and_see(world)


async def the_only_one(world: World) -> None:
    """Nobody is there to take over until it is started again: that is when the time begins."""
    with world.logbook.fault("crash"):
        await world.shards[VICTIM].kill()
        await world.start_shard(VICTIM)
    await world.until_owned(1)
    await world.until_arrived(100)


async def stopped(world: World) -> None:
    """SIGTERM: it hands everything over. Nothing is late, nothing comes twice."""
    await world.stop(VICTIM)
    await world.until_owned(1)
    await world.until_arrived(100)


async def the_api(world: World) -> None:
    """While it answers a client; what it has acknowledged is there."""
    for _ in range(3):
        trap = world.proxies["api"].trap("change", "answered")
        await trap.spring()
        await world.kill_api()
    await world.until_arrived(100)


async def _kill_and_see(world: World) -> None:
    """The other one takes over, and goes on."""
    await world.kill(VICTIM)
    await world.until_owned(1)
    await world.until_arrived(100)


SCENARIOS = [
    Scenario(name="kill -9, before the arm commits", strike=before_the_arm_commits),
    Scenario(name="kill -9, armed and not sent", strike=armed_and_not_sent),
    Scenario(name="kill -9, sent and not answered", strike=sent_and_not_answered, is_short=True),
    Scenario(name="kill -9, answered and not settled", strike=answered_and_not_settled),
    Scenario(name="kill -9, settled and not told", strike=settled_and_not_told),
    Scenario(name="kill -9, at any moment", strike=at_any_moment),
    Scenario(name="kill -9 of the only shard", strike=the_only_one, shards=1),
    Scenario(name="kill -9 of the API, committed and not told", strike=the_api),
    Scenario(name="SIGTERM", strike=stopped),
]
