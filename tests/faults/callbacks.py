"""Callbacks that call wheelsched itself, where programs of the machine need no token.

An attacker has a token to read and write the jobs of one tenant, and wants to be an operator. What
is judged beside the jobs of everybody is the installation: it is as it was before, row by row.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import Struct
from tests.checker.records import FINAL
from tests.faults.client import Client, now_us, once_at
from tests.faults.experiment import Scenario
from tests.faults.world import World
from tests.waiting import WAIT_LIMIT_S

SECOND_US = 1_000_000
POLL_S = 0.2
CHUNK = 65_536
UNPROCESSABLE = 422
SPELLINGS = ("127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]")
ODD_SPELLINGS = (  # of which some resolvers and kernels make an address of this machine
    *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::]", "[::127.0.0.1]"),
    *("127.0.0.1.", "localhost.", "a.localhost", "me@127.0.0.1", "\uff11\uff12\uff17.0.0.1"),
)
INSTALLATION = ("tenants", "tokens", "database_roles", "settings")
BY_EGRESS = ("wheelsched itself listens on", "the target's address is not allowed")
BY_HEADERS = ("urn:wheelsched:problem:callback-refused",)


class Attack(Struct, frozen=True, kw_only=True):
    """A request that only an operator may make."""

    method: str
    path: str
    payload: dict[str, object]


class Run(Struct):
    """What the API shows of a run, as far as it matters."""

    state: str
    attempt: int
    error: str | None = None


async def call_ourselves(world: World) -> None:
    """To the API and to the shards, however they are spelled, and to the API by a detour."""
    before = await _installation(world)
    client = world.clients.each[0]
    attacks = _attacks(client.tenant.tenant_id)
    await _call_api(world, client, attacks)
    by_egress = await _call_shards(world, client, attacks)
    async with _relay(world.api.port) as port:
        by_headers = await _call(client, f"127.0.0.1:{port}", attacks, batch=1)
        by_headers += await _call(client, f"127.0.0.1:{port}", attacks, batch=5)
        for names, errors in ((by_egress, BY_EGRESS), (by_headers, BY_HEADERS)):
            world.require(bool(names), "an attack was not accepted, so that nothing was tried")
            for name in names:
                await _require_dead(world, client, name, errors)
    world.require(await _installation(world) == before, "an attacker changed the installation")
    world.remarks.append(f"{len(by_egress)} runs stopped by egress, {len(by_headers)} by the API")
    await world.until_arrived(100)


def _attacks(tenant_id: str) -> tuple[Attack, ...]:
    return (
        Attack(
            method="PATCH", path=f"/api/v1/tenants/{tenant_id}", payload={"job_quota": 99_999_999}
        ),
        Attack(method="POST", path=f"/api/v1/tenants/{tenant_id}/rotate-secret", payload={}),
        Attack(method="POST", path="/api/v1/tenants", payload={"name": "attacker"}),
        Attack(
            method="POST",
            path="/api/v1/tokens",
            payload={"name": "attacker", "scopes": ["operator"]},
        ),
    )


async def _call_api(world: World, client: Client, attacks: tuple[Attack, ...]) -> None:
    """The API knows where it listens: it accepts no such job, nor an edit that makes one."""
    job = f"jobs/{client.ids['beside-0']}"
    for spelling in (*SPELLINGS, *ODD_SPELLINGS):
        at = f"{spelling}:{world.api.port}"
        accepted = await _call(client, at, attacks, batch=1)
        world.require(not accepted, f"the API accepted itself as a target: {accepted}")
        edited = await client.send("PATCH", job, {"target": {"url": f"http://{at}/api/v1/tokens"}})
        is_refused = edited.status == UNPROCESSABLE
        world.require(is_refused, f"an edit to {at} was answered with {edited.status}")


async def _call_shards(world: World, client: Client, attacks: tuple[Attack, ...]) -> list[str]:
    """The API does not know where they listen: what it accepts has to die at their sockets."""
    accepted: list[str] = []
    for shard in world.shards.values():
        for spelling in SPELLINGS:
            accepted += await _call(client, f"{spelling}:{shard.port}", attacks[:1], batch=1)
    return accepted


async def _call(client: Client, at: str, attacks: tuple[Attack, ...], batch: int) -> list[str]:
    """Registers jobs that attack an address; gives the names of those that were accepted."""
    accepted: list[str] = []
    for number, attack in enumerate(attacks):
        name = f"attack-{number}-{batch}-{at.encode().hex()}"
        url = f"http://{at}{attack.path}"
        definition = once_at(now_us() + 2 * SECOND_US, url, is_forbidden=True)
        target = {"url": url, "method": attack.method, "batch": batch}
        await client.create(name, definition, target=target, payload=attack.payload)
        accepted += [name] if name in client.ids else []
    return accepted


async def _require_dead(world: World, client: Client, name: str, errors: tuple[str, ...]) -> None:
    """Its only attempt ended it, by one of these errors."""
    run = await _until_ended(client, client.ids[name])
    is_dead = run.state == "dead" and run.attempt == 1
    is_told = any(error in (run.error or "") for error in errors)
    world.require(is_dead and is_told, f"{name} is {run}")


async def _until_ended(client: Client, job_id: str) -> Run:
    async with asyncio.timeout(WAIT_LIMIT_S):
        while True:
            answered = await client.send("GET", f"jobs/{job_id}/runs", None)
            for run in msgspec.convert(answered.body.get("items", []), list[Run]):
                if run.state in FINAL:
                    return run
            await asyncio.sleep(POLL_S)


async def _installation(world: World) -> dict[str, list[object]]:
    """Everything that only operators change, column by column."""
    connection = await world.connect()
    try:
        return {
            table: list(await connection.fetch(f"SELECT * FROM wheelsched.{table} ORDER BY 1"))
            for table in INSTALLATION
        }
    finally:
        await connection.close()


@asynccontextmanager
async def _relay(to: int) -> AsyncIterator[int]:
    """Passes on whatever comes to a port to the API, as a tunnel would: egress cannot see it."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(CHUNK):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, on = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(carry(near, on), carry(far, back))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


SCENARIOS = [
    Scenario(name="callbacks that call wheelsched itself", strike=call_ourselves, is_short=True)
]
