"""A backlog: very many runs of one job wait, and the shard that has them dies.

What is judged are the jobs beside it, whose lateness only the death explains, and the backlog's own
runs: each comes to its end, or is cancelled with its job.
"""

import asyncio
import os
from uuid import UUID

from tests.faults.client import Client, every_second, now_us
from tests.faults.experiment import Scenario
from tests.faults.world import World

from wheelsched.core.partition import partition_of

SECOND_US = 1_000_000
BACKLOG = int(os.environ.get("FAULTS_BACKLOG", "4000"))
DRAINED = BACKLOG // 10  # of a backlog that is brought to its end
MOST_S = 10_000  # of one request
NAME = "backlog"


async def drained(world: World) -> None:
    """Runs that go out beside each other."""
    client = await _fill(world, DRAINED, "allow")
    await _kill_owner(world, client)


async def deleted(world: World) -> None:
    """Runs that wait for each other: hardly any has gone out when their job is deleted."""
    client = await _fill(world, BACKLOG, "skip")
    await _kill_owner(world, client)
    await client.delete(NAME)
    await world.until_arrived(200)


async def _fill(world: World, runs: int, overlap: str) -> Client:
    client = world.clients.each[0]
    await client.create(NAME, every_second(f"{world.other.url}/ok", overlap))
    until_us = now_us() // SECOND_US * SECOND_US - 3_600 * SECOND_US
    for filled in range(0, runs, MOST_S):
        since_us = until_us - min(MOST_S, runs - filled) * SECOND_US
        await client.backfill(NAME, since_us, until_us)
        until_us = since_us
    await world.until_arrived(100)
    return client


async def _kill_owner(world: World, client: Client) -> None:
    """In the middle of it; another takes over, and goes on with everything."""
    connection = await world.connect()
    owner = await connection.fetchval(
        "SELECT owner FROM wheelsched.partitions WHERE partition = $1",
        partition_of(UUID(client.ids[NAME])),
    )
    await connection.close()
    (victim,) = [name for name, shard in world.shards.items() if shard.shard_id == str(owner)]
    await world.kill(victim)
    await world.until_owned(1)
    await world.until_arrived(200)
    await asyncio.sleep(1)


SCENARIOS = [
    Scenario(
        name=f"{DRAINED:,} runs of one job wait, its shard dies", strike=drained, is_short=True
    ),
    Scenario(
        name=f"{BACKLOG:,} runs of one job wait, its shard dies, the job is deleted",
        strike=deleted,
        is_short=True,
    ),
]
