"""A database that is restored from a backup of some seconds ago, while everybody uses it."""

import asyncio
import shutil

from tests.faults.client import now_us
from tests.faults.logbook import Connection
from tests.ha.node import SUPERUSER, Node
from tests.ha.programs import run_as
from tests.ha.world import DATABASE, HaWorld

AGE_S = 7.0
LOST = "lost"
RESTORED = "restored"
END_ALL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1
"""


async def from_a_dump(world: HaWorld) -> None:
    """`pg_dump`, some seconds, and `pg_restore` in the place of the database."""
    primary = await world.cluster.the_primary()
    dump = str(primary.directory / "dump")
    since_us = now_us()
    await _run(primary, "pg_dump", "-Fc", "-f", dump, DATABASE)
    await asyncio.sleep(AGE_S)
    connection = await primary.connect()
    await connection.execute(f"CREATE DATABASE {RESTORED} TEMPLATE template0")
    await _run(primary, "pg_restore", "-d", RESTORED, dump)
    with world.outage():
        until_us = await _exchange(connection)
    await connection.close()
    world.lose(since_us, until_us)
    await world.read_lost(primary.url(LOST))
    await world.until_owned(2)
    await world.until_arrived(1_000)
    world.require_noticed()


async def from_a_base_backup(world: HaWorld) -> None:
    """`pg_basebackup`, some seconds, and its files in the place of the primary's."""
    primary = await world.cluster.the_primary()
    backup = primary.directory / "backup"
    await _run(primary, "pg_basebackup", "-D", str(backup), "-X", "stream", "-c", "fast")
    await asyncio.sleep(AGE_S)
    with world.outage():
        for node in world.cluster.nodes.values():
            node.kill()
        until_us = now_us()
        await world.read_lost_of(primary)
        for node in world.cluster.nodes.values():
            await asyncio.to_thread(shutil.rmtree, node.data)
        backup.rename(primary.data)
        await world.cluster.expire()
        await primary.start()
        await world.cluster.promoted([primary])
    world.lose(await world.replayed_us(primary), until_us)
    for node in world.cluster.nodes.values():
        if node is not primary:
            await node.start()
    await world.until_owned(2)
    await world.until_arrived(1_000)
    await world.cluster.until_whole()
    world.require_noticed()


async def _exchange(connection: Connection) -> int:
    """Puts the restored database in the place of the other; gives when that was closed."""
    await connection.execute(f"ALTER DATABASE {DATABASE} WITH ALLOW_CONNECTIONS false")
    while await connection.fetchval(END_ALL, DATABASE):
        await asyncio.sleep(0.05)
    until_us = now_us()
    await connection.execute(f"ALTER DATABASE {DATABASE} RENAME TO {LOST}")
    await connection.execute(f"ALTER DATABASE {RESTORED} RENAME TO {DATABASE}")
    await connection.execute(f"ALTER DATABASE {LOST} WITH ALLOW_CONNECTIONS true")
    return until_us


async def _run(node: Node, program: str, *arguments: str) -> None:
    """A program of Postgres, as a client of a node."""
    where = ("-h", str(node.directory), "-p", str(node.postgres_port), "-U", SUPERUSER)
    command = (str(node.programs.postgres / program), *where, *arguments)
    await asyncio.to_thread(run_as, node.programs, command)
