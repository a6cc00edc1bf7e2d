"""Runs an embedded Postgres, shards and the API as one process tree.

Invariant: everything ends with this process. On a graceful stop, the API and the shards end before
the database; if this process is killed, the children notice that their pipes closed.
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
    LinkConfig,
    ProbeConfig,
    ShardConfig,
    StoreConfig,
)
from wheelsched.daemon.api import LOCAL_TENANT_ID, ApiDaemonConfig, open_local_tenant
from wheelsched.daemon.bootstrap import open_clock, stop_on_signals
from wheelsched.daemon.certificates import Certifier
from wheelsched.daemon.child_channel import Assignment
from wheelsched.daemon.database import migrate_database
from wheelsched.daemon.listeners import with_api_listeners, with_own_listener
from wheelsched.daemon.processes import START_TIMEOUT_S, Child, Processes
from wheelsched.daemon.shard import ShardDaemonConfig
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.errors import ProcessSlow
from wheelsched.logs import LogLevel
from wheelsched.ports import LeaseStore
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore

log = structlog.get_logger("wheelsched.daemon")

POLL_NS: Final = 100_000_000
API_NICENESS: Final = 5  # the API yields to the shards on the same machine


class UpConfig(Struct, frozen=True, kw_only=True):
    """What to start, and how."""

    embedded: EmbeddedConfig = EmbeddedConfig()
    api: ApiConfig = ApiConfig(auth="loopback")
    shard: ShardConfig = ShardConfig()
    dispatch: DispatchConfig = DispatchConfig()
    shards: int = 1
    log_level: LogLevel = "warning"


class Stack(Struct, frozen=True, kw_only=True):
    """A running stack. `secret` signs the callbacks of the local tenant."""

    url: str
    grpc: str | None  # HOST:PORT
    secret: str
    is_secret_new: bool  # created by this start, so it has to be shown
    database_url: str
    api: Child
    shards: tuple[Child, ...]


async def run_up(config: UpConfig, on_ready: Callable[[Stack], None]) -> None:
    """Runs everything until SIGTERM or SIGINT; a second signal ends it at once."""
    stopping = asyncio.Event()
    stop_on_signals(stopping)
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
    """A running stack: all processes are ready and all partitions have owners."""
    config = replace(config, api=_with_ports(config.api))
    server = await asyncio.to_thread(EmbeddedPostgres.start, config.embedded)
    try:
        await migrate_database(server.url)
        secret, is_new = await _open_secret(server.url)
        api, shards = _children(config, server.url)
        certifier = Certifier(StoreConfig(url=server.url, role="shard"), config.shard.lease_ttl_us)
        processes = Processes([api, *shards], certifier)
        async with processes.running():
            await processes.wait_until_ready()
            await _wait_until_partitions_owned(server.url, len(shards))
            yield Stack(
                url=api.address,
                grpc=None if config.api.grpc is None else config.api.grpc.address,
                secret=secret,
                is_secret_new=is_new,
                database_url=server.url,
                api=api,
                shards=tuple(shards),
            )
    finally:
        await asyncio.to_thread(server.stop)


def _children(config: UpConfig, url: str) -> tuple[Child, list[Child]]:
    api_config = config.api
    api_egress, shard_egress = (
        with_own_listener(
            with_api_listeners(egress, api_config), "127.0.0.1", config.embedded.port or 0
        )
        for egress in (api_config.egress, config.dispatch.egress)
    )
    api = ApiDaemonConfig(
        store=StoreConfig(url=url, role="api"),
        api=replace(api_config, egress=api_egress),
        niceness=API_NICENESS,
    )
    shard = ShardDaemonConfig(
        store=StoreConfig(url=url, role="shard"),
        shard=config.shard,
        dispatch=replace(config.dispatch, egress=shard_egress),
        probe=ProbeConfig(),
        link=LinkConfig(),
    )
    level = config.log_level
    return Child("api", Assignment(role=api, log_level=level)), [
        Child(f"shard {number}", Assignment(role=shard, log_level=level))
        for number in range(1, config.shards + 1)
    ]


def _with_ports(config: ApiConfig) -> ApiConfig:
    """Picks free ports where none is set, so that a restarted API keeps its ports."""
    grpc = config.grpc
    if grpc is not None and not grpc.port:
        config = replace(config, grpc=replace(grpc, port=_free_port(grpc.host)))
    return config if config.port else replace(config, port=_free_port(config.host))


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        port: int = server.getsockname()[1]
        return port


async def _open_secret(url: str) -> tuple[str, bool]:
    """The secret of the local tenant, and whether it was just created."""
    async with await Database.open(StoreConfig(url=url, role="api", connections=1)) as database:
        stores = PostgresStore(database)
        clock = await open_clock(SystemClock(), stores.leases)
        is_new = not await stores.tenants.read([LOCAL_TENANT_ID])
        tenant = await open_local_tenant(stores.tenants, clock.now_us())
        return tenant.secrets[0], is_new


async def _wait_until_partitions_owned(url: str, shards: int) -> None:
    """Returns when every partition has an owner and every shard owns some.

    Another `up` on the same data has its own shards.
    """
    config = StoreConfig(url=url, role="api", connections=1)
    async with await Database.open(config) as database:
        leases = PostgresStore(database).leases
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await _are_partitions_owned(leases, shards):
                    await SystemClock().sleep(POLL_NS)
        except TimeoutError as error:
            raise ProcessSlow(
                f"the partitions were not distributed to the shards within {START_TIMEOUT_S} s"
            ) from error


async def _are_partitions_owned(leases: LeaseStore, shards: int) -> bool:
    survey = await leases.survey()
    owners = {ownership.owner for ownership in survey.partitions}
    living = {shard.shard_id for shard in survey.shards if not shard.is_expired}
    return owners == living and len(living) >= shards
