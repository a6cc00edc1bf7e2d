"""A database that is killed, restarted, away, held, full, or at another time."""

import asyncio
import contextlib
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
from tests.faults.clock_shim import ClockShim
from tests.faults.experiment import SCALE, Load, NotAvailable, Scenario, Strike
from tests.faults.logbook import Connection
from tests.faults.server import Server, running_server
from tests.faults.world import World
from tests.postgres import reachable_directory

AWAY_S = max(10.0, 60.0 * SCALE)
DISK_MB = 320
FULL_S = 8.0
CLOCK_US = 30_000_000
CLOCK_S = 8.0  # within which everybody has seen it
STEPPED_S = 32.0  # after that: what a step explains, it explains in its first seconds only


async def killed(world: World) -> None:
    with world.outage():
        await world.server.kill()
        await world.server.start()
    await world.until_arrived(100)


async def restarted(world: World) -> None:
    with world.outage():
        await world.server.stop()
        await world.server.start()
    await world.until_arrived(100)


async def away(world: World) -> None:
    """Nothing can be claimed, so nothing may arrive but what was armed before."""
    with world.outage():
        await world.server.stop()
        await asyncio.sleep(AWAY_S)
        await world.server.start()
    for name, shard in world.shards.items():
        world.require(shard.is_running, f"{name} has not survived it")
    await world.until_arrived(100)


async def pool_exhausted(world: World) -> None:
    """Every table that work needs is locked for longer than a statement may wait."""
    connection = await world.connect()
    with world.logbook.fault("store"):
        async with connection.transaction():
            await connection.execute("LOCK TABLE wheelsched.timers, wheelsched.runs")
            await asyncio.sleep(12)
    await connection.close()
    failed = [event for shard in world.shards.values() for event in shard.events("store.failed")]
    world.require(bool(failed), "no statement has noticed")
    await world.until_arrived(100)


async def connections_used_up(world: World) -> None:
    """The server has no place left when everybody has to connect anew."""
    held: list[Connection] = []
    with world.outage():
        for proxy in world.proxies.values():
            proxy.is_refusing = True
            proxy.cut()
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await world.connect())
        for proxy in world.proxies.values():
            proxy.is_refusing = False
        await asyncio.sleep(FULL_S)
        for connection in held:
            await connection.close()
    await world.until_arrived(100)


async def snapshot_held(world: World) -> None:
    """Nothing can be cleaned up behind it, until everybody is at the end."""
    connection = await world.connect()
    world.finally_do(connection.close)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    await connection.fetch("SELECT FROM wheelsched.timers")
    await world.until_arrived(400)


async def disk_full(world: World) -> None:
    """The last byte is taken, and given back."""
    ballast = world.server.home / "ballast"
    with world.logbook.fault("store"):
        _fill(ballast)
        await asyncio.sleep(FULL_S)
        failures = await _count_failures(world)
        ballast.unlink()
    world.require(failures > 0, "the disk was not full enough for anybody to notice")
    await _until_up(world)
    world.logbook.returns_us.append(world.logbook.faults[-1].until_us)
    await world.until_arrived(100)


def clock_moved(offset_us: int) -> Strike:
    async def strike(world: World) -> None:
        await world.move_clock(offset_us)
        await asyncio.sleep(CLOCK_S)
        for name, shard in world.shards.items():
            world.require(bool(shard.events("clock.stepped")), f"{name} has not seen the step")
            world.require(not shard.events("shard.restarted"), f"{name} was robbed by it")
        await asyncio.sleep(STEPPED_S)
        await world.until_arrived(50)

    return strike


async def on_a_small_disk(stack: AsyncExitStack) -> tuple[Server, ClockShim | None]:
    """A server whose whole home is a small tmpfs."""
    home = reachable_directory()
    stack.callback(shutil.rmtree, home, ignore_errors=True)
    options = f"size={DISK_MB}m,mode=0711"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(home)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    except OSError as error:
        raise NotAvailable(f"no disk to fill: {error}") from error
    if done.returncode:
        raise NotAvailable(f"no disk to fill: {done.stderr.strip() or 'mount is not allowed'}")
    stack.callback(subprocess.run, ["umount", "--lazy", str(home)], check=False)
    return await stack.enter_async_context(running_server(home)), None


async def with_a_clock(stack: AsyncExitStack) -> tuple[Server, ClockShim | None]:
    """A server whose clock can be set."""
    if not ClockShim.is_available():
        raise NotAvailable("no C compiler to build the library that moves a clock")
    directory = reachable_directory()
    stack.callback(shutil.rmtree, directory)
    shim = ClockShim(directory)
    server = await stack.enter_async_context(running_server(environment=shim.environment))
    return server, shim


def _fill(ballast: Path) -> None:
    """Takes whatever is free."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


async def _count_failures(world: World) -> int:
    return sum(len(shard.events("store.failed")) for shard in world.shards.values())


async def _until_up(world: World) -> None:
    """A server that found no room for its log has ended itself."""
    try:
        connection = await world.connect()
    except (OSError, asyncpg.PostgresError):
        await world.server.kill()
        await world.server.start()
    else:
        await connection.close()


LONG = Load(over_s=30, one_offs=90)
STEPPED = Load(over_s=60, one_offs=120)

SCENARIOS = [
    Scenario(name="Postgres killed (-9)", strike=killed, is_short=True),
    Scenario(name="Postgres restarted", strike=restarted),
    Scenario(name=f"Postgres stopped for {AWAY_S:.0f} s", strike=away, load=Load(over_s=70)),
    Scenario(name="pool exhausted: tables locked for 12 s", strike=pool_exhausted, load=LONG),
    Scenario(name="no connection left for 8 s", strike=connections_used_up, load=LONG),
    Scenario(name="a snapshot held open", strike=snapshot_held),
    Scenario(name="disk full", strike=disk_full, surround=on_a_small_disk),
    Scenario(
        name="database clock +30 s",
        strike=clock_moved(CLOCK_US),
        surround=with_a_clock,
        load=STEPPED,
    ),
    Scenario(
        name="database clock −30 s",
        strike=clock_moved(-CLOCK_US),
        surround=with_a_clock,
        load=STEPPED,
    ),
]
