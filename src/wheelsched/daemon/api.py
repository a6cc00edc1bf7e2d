"""The API as a process, on Postgres.

Invariant: without a token only programs of this machine are answered, and only while the API
listens on the loopback.
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
from wheelsched.api.server import ApiServer
from wheelsched.api.surroundings import Surroundings
from wheelsched.api.tenants import new_secret
from wheelsched.clock import SystemClock
from wheelsched.config import ApiConfig, StoreConfig
from wheelsched.daemon.condition import ShardInquiry
from wheelsched.daemon.garbage import Collector
from wheelsched.daemon.listeners import with_own
from wheelsched.daemon.opening import (
    address_taken,
    awaited,
    heed_signals,
    open_clock,
)
from wheelsched.daemon.readings import ClockReadings
from wheelsched.metrics import api_registry
from wheelsched.ports import Tenant, TenantStore
from wheelsched.store.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.vitals import ApiVitals

log = structlog.get_logger("wheelsched.daemon")

# Whom programs of this machine speak for when they show no token.
LOCAL_TENANT_ID: Final = UUID("00000000-0000-4000-8000-000000000001")
LOCAL_TENANT: Final = "local"
LOCAL_QUOTA: Final = 10_000_000


class ApiDaemonConfig(Struct, frozen=True, kw_only=True, tag="api"):
    """Everything that an API process is told.

    `niceness` lowers its priority where it shares a machine with shards: an answer can wait for
    some milliseconds, a run cannot.
    """

    store: StoreConfig
    api: ApiConfig = ApiConfig()
    niceness: int = 0


async def run_api(
    config: ApiDaemonConfig, on_ready: Callable[[str], None] = lambda url: None
) -> None:
    """Answers until SIGTERM or SIGINT; a second one ends the process at once.

    `on_ready` is called with the address when it listens.
    """
    stopping = asyncio.Event()
    heed_signals(stopping)
    os.nice(config.niceness)
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
    """A running API. Waits for a database that is away."""
    machine = SystemClock()
    async with AsyncExitStack() as stack:
        database = await awaited(machine, lambda: Database.open(config.store), stopping)
        stack.push_async_callback(database.close)
        store = PostgresStore(database)
        clock = await awaited(machine, lambda: open_clock(machine, store.leases), stopping)
        told = replace(
            config.api, egress=with_own(config.api.egress, config.api.host, config.api.port)
        )
        if told.auth == "loopback":
            tenant = await awaited(
                machine, lambda: open_local_tenant(store.tenants, clock.now_us()), stopping
            )
            told = replace(told, loopback_tenant_id=tenant.tenant_id)
        inquiry = ShardInquiry()
        stack.push_async_callback(inquiry.close)
        readings = ClockReadings(machine, clock, store.leases)
        stack.callback(readings.close)
        vitals = ApiVitals()
        registry = api_registry(vitals)
        surroundings = Surroundings(
            clock=machine,
            now_us=clock.now_us,
            refresh_now=readings.refresh,
            random=Random(token_bytes(32)),  # noqa: S311 - of ids, which are no secrets
            metrics=lambda: generate_latest(registry).decode(),
            vitals=vitals,
            ask_shard=inquiry.ask,
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        keeping_up = tasks.create_task(readings.keep_up())
        stack.callback(keeping_up.cancel)
        try:
            server = await ApiServer.start(build_app(store, surroundings, told), told)
        except OSError as error:
            raise address_taken(told.host, told.port, error) from error
        yield await stack.enter_async_context(server)


async def open_local_tenant(tenants: TenantStore, now_us: int) -> Tenant:
    """The tenant of this machine's programs, which is made when it is asked for first."""
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
    (made,) = await tenants.read([LOCAL_TENANT_ID])  # by somebody else, if that was quicker
    return made
