"""The API as a process, on Postgres.

Invariant: without a token only local programs are served, and only while the API listens on
loopback.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from secrets import token_bytes
from typing import Final
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import generate_latest

from wheelsched.api.app import build_app
from wheelsched.api.environment import Environment
from wheelsched.api.http.server import ApiServer
from wheelsched.api.resources.tenants import new_secret
from wheelsched.clock import SystemClock
from wheelsched.config import ApiConfig, LinkConfig, StoreConfig
from wheelsched.daemon.bootstrap import (
    address_taken,
    open_clock,
    raise_file_limit,
    retry_until_available,
    stop_on_signals,
)
from wheelsched.daemon.clock_sync import ClockSync
from wheelsched.daemon.garbage import Collector
from wheelsched.daemon.links import open_distributor
from wheelsched.daemon.listeners import with_api_listeners
from wheelsched.daemon.shard_status import ShardStatusClient
from wheelsched.metrics import api_registry
from wheelsched.ports import Tenant, TenantStore
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.vitals import ApiVitals

log = structlog.get_logger("wheelsched.daemon")

# The tenant of local programs that send no token.
LOCAL_TENANT_ID: Final = UUID("00000000-0000-4000-8000-000000000001")
LOCAL_TENANT: Final = "local"
LOCAL_QUOTA: Final = 10_000_000


class ApiDaemonConfig(Struct, frozen=True, kw_only=True, tag="api"):
    """The configuration of an API process.

    `niceness` lowers its priority when it shares a machine with shards: a response can wait some
    milliseconds, a run cannot.
    """

    store: StoreConfig
    api: ApiConfig = ApiConfig()
    link: LinkConfig = LinkConfig()
    niceness: int = 0


async def run_api(
    config: ApiDaemonConfig, on_ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serves until SIGTERM or SIGINT; a second signal ends the process at once.

    `on_ready` is called with the URL once the API listens.
    """
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    os.nice(config.niceness)
    raise_file_limit()
    async with open_api(config, stopping) as server, asyncio.TaskGroup() as tasks:
        collecting = tasks.create_task(Collector(SystemClock()).run())
        on_ready(server.url)
        log.info("api.listening", url=server.url, auth=config.api.auth)
        await stopping.wait()
        collecting.cancel()


@asynccontextmanager
async def open_api(
    config: ApiDaemonConfig, stopping: asyncio.Event | None = None
) -> AsyncIterator[ApiServer]:
    """A running API. Waits until the database is available."""
    machine = SystemClock()
    async with AsyncExitStack() as stack:
        database = await retry_until_available(
            machine, lambda: Database.open(config.store), stopping
        )
        stack.push_async_callback(database.close)
        store = PostgresStore(database)
        clock = await retry_until_available(
            machine, lambda: open_clock(machine, store.leases), stopping
        )
        api_config = replace(config.api, egress=with_api_listeners(config.api.egress, config.api))
        if api_config.auth == "loopback":
            tenant = await retry_until_available(
                machine, lambda: open_local_tenant(store.tenants, clock.now_us()), stopping
            )
            api_config = replace(api_config, loopback_tenant_id=tenant.tenant_id)
        status_client = ShardStatusClient()
        stack.push_async_callback(status_client.close)
        clock_sync = ClockSync(machine, clock, store.leases)
        stack.callback(clock_sync.close)
        distributor = await stack.enter_async_context(
            open_distributor(config.link, store, machine, clock)
        )
        vitals = ApiVitals()
        registry = api_registry(vitals)

        def metrics() -> str:
            vitals.linked_shards = distributor.shards
            return generate_latest(registry).decode()

        environment = Environment(
            clock=machine,
            now_us=clock.now_us,
            refresh_clock=clock_sync.refresh,
            random=Random(token_bytes(32)),  # noqa: S311 - for ids, which are not secret
            metrics=metrics,
            vitals=vitals,
            fetch_shard_status=status_client.fetch,
            work=distributor,
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        syncing = tasks.create_task(clock_sync.run())
        stack.callback(syncing.cancel)
        try:
            server = await ApiServer.start(build_app(store, environment, api_config), api_config)
        except OSError as error:
            raise address_taken(api_config.host, api_config.port, error) from error
        yield await stack.enter_async_context(server)


async def open_local_tenant(tenants: TenantStore, now_us: int) -> Tenant:
    """The tenant of local programs, created on first use."""
    for found in await tenants.read([LOCAL_TENANT_ID]):
        return found
    await tenants.create(
        "loopback",
        Tenant(
            tenant_id=LOCAL_TENANT_ID,
            name=LOCAL_TENANT,
            job_quota=LOCAL_QUOTA,
            secrets=(new_secret(),),
            created_at_us=now_us,
        ),
    )
    (made,) = await tenants.read([LOCAL_TENANT_ID])  # another process may have created it first
    return made
