"""Everything at once: an embedded Postgres, shards and the API, as one tree of processes.

Invariant: all of it ends with this process. In good order the API and the shards end first, and
the database after them; killed, this process drops the lines that the others hold on to.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.clock import SystemClock
from wheelsched.config import (
    ApiConfig,
    DispatchConfig,
    EmbeddedConfig,
    ProbeConfig,
    ShardConfig,
    StoreConfig,
)
from wheelsched.daemon.api import LOCAL_TENANT_ID, ApiDaemonConfig, open_local_tenant
from wheelsched.daemon.database import migrate_database
from wheelsched.daemon.line import Assignment
from wheelsched.daemon.listeners import with_own
from wheelsched.daemon.opening import heed_signals, open_clock
from wheelsched.daemon.processes import START_TIMEOUT_S, Child, Processes
from wheelsched.daemon.shard import ShardDaemonConfig
from wheelsched.errors import ProcessSlow
from wheelsched.logs import LogLevel
from wheelsched.ports import LeaseStore
from wheelsched.store.database import Database
from wheelsched.store.embedded import EmbeddedPostgres
from wheelsched.store.postgres import PostgresStore

log = structlog.get_logger("wheelsched.daemon")

LOOK_NS: Final = 100_000_000
BESIDE_SHARDS: Final = 5  # the niceness of an API that shares a machine with them


class UpConfig(Struct, frozen=True, kw_only=True):
    """What is started, and how."""

    embedded: EmbeddedConfig = EmbeddedConfig()
    api: ApiConfig = ApiConfig(auth="loopback")
    shard: ShardConfig = ShardConfig()
    dispatch: DispatchConfig = DispatchConfig()
    shards: int = 1
    log_level: LogLevel = "warning"


class Stack(Struct, frozen=True, kw_only=True):
    """What is running. `secret` signs the callbacks of this machine's own jobs."""

    url: str
    secret: str
    is_secret_new: bool  # made by this start, so that nobody has seen it
    database_url: str
    api: Child
    shards: tuple[Child, ...]


async def run_up(config: UpConfig, on_ready: Callable[[Stack], None]) -> None:
    """Runs everything until SIGTERM or SIGINT; a second one ends it at once."""
    stopping = asyncio.Event()
    heed_signals(stopping)
    is_up = asyncio.Event()

    async def serve() -> None:
        async with open_stack(config) as stack:
            is_up.set()
            on_ready(stack)
            await stopping.wait()

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve())
        stopped = tasks.create_task(stopping.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not is_up.is_set():
            serving.cancel()
        stopped.cancel()


@asynccontextmanager
async def open_stack(config: UpConfig) -> AsyncIterator[Stack]:
    """A running stack: every process is ready, and every partition has its shard."""
    server = await asyncio.to_thread(EmbeddedPostgres.start, config.embedded)
    try:
        await migrate_database(server.url)
        secret, is_new = await _open_secret(server.url)
        api, shards = _children(config, server.url)
        processes = Processes([api, *shards])
        async with processes.running():
            await processes.are_ready()
            await _are_shared(server.url, len(shards))
            yield Stack(
                url=api.address,
                secret=secret,
                is_secret_new=is_new,
                database_url=server.url,
                api=api,
                shards=tuple(shards),
            )
    finally:
        await asyncio.to_thread(server.stop)


def _children(config: UpConfig, url: str) -> tuple[Child, list[Child]]:
    told = _with_port(config.api)
    own = [(told.host, told.port), ("127.0.0.1", config.embedded.port or 0)]
    api_egress, shard_egress = told.egress, config.dispatch.egress
    for host, port in own:
        api_egress, shard_egress = (
            with_own(egress, host, port) for egress in (api_egress, shard_egress)
        )
    api = ApiDaemonConfig(
        store=StoreConfig(url=url, role="api"),
        api=replace(told, egress=api_egress),
        niceness=BESIDE_SHARDS,
    )
    shard = ShardDaemonConfig(
        store=StoreConfig(url=url, role="shard"),
        shard=config.shard,
        dispatch=replace(config.dispatch, egress=shard_egress),
        probe=ProbeConfig(),
    )
    level = config.log_level
    return Child("api", Assignment(role=api, log_level=level)), [
        Child(f"shard {number}", Assignment(role=shard, log_level=level))
        for number in range(1, config.shards + 1)
    ]


def _with_port(config: ApiConfig) -> ApiConfig:
    """A port that is free, where any would do: the API that is started again has the same."""
    if config.port:
        return config
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.create_server((config.host, 0), family=family) as server:
        return replace(config, port=server.getsockname()[1])


async def _open_secret(url: str) -> tuple[str, bool]:
    """The secret of the local tenant, and whether it was made just now."""
    async with await Database.open(StoreConfig(url=url, role="api", connections=1)) as database:
        stores = PostgresStore(database)
        clock = await open_clock(SystemClock(), stores.leases)
        is_new = not await stores.tenants.read([LOCAL_TENANT_ID])
        tenant = await open_local_tenant(stores.tenants, clock.now_us())
        return tenant.secrets[0], is_new


async def _are_shared(url: str, shards: int) -> None:
    """Returns when every partition has an owner, and every shard partitions.

    Another `up` on the same data has shards of its own.
    """
    config = StoreConfig(url=url, role="api", connections=1)
    async with await Database.open(config) as database:
        leases = PostgresStore(database).leases
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await _is_shared(leases, shards):
                    await SystemClock().sleep(LOOK_NS)
        except TimeoutError as error:
            raise ProcessSlow(
                f"the shards did not share the partitions within {START_TIMEOUT_S} s"
            ) from error


async def _is_shared(leases: LeaseStore, shards: int) -> bool:
    survey = await leases.survey()
    owners = {ownership.owner for ownership in survey.partitions}
    living = {shard.shard_id for shard in survey.shards if not shard.is_expired}
    return owners == living and len(living) >= shards
