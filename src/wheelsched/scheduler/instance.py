"""One instance of a service on Postgres: a shard, and the runs of all instances for its worker.

Invariant: everything opened here is closed here, in reverse order, in bounded time. The runs of
this process's own shard do not leave the process.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar
from uuid import UUID

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from wheelsched.clock import SystemClock
from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.daemon.api import open_local_tenant
from wheelsched.daemon.bootstrap import retry_until_available
from wheelsched.daemon.database import migrate_database, open_operator
from wheelsched.daemon.links import open_distributor
from wheelsched.daemon.shard import OpenShard, ShardDaemonConfig, open_shard, run_retention
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.errors import StoreError, TenantNotFound
from wheelsched.ports import JobStore, TenantStore
from wheelsched.ports.work import WorkSource
from wheelsched.scheduler.config import SchedulerConfig
from wheelsched.shard.service import Shard
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.vitals import Vitals
from wheelsched.worker.worker import WallClock

log = structlog.get_logger("wheelsched.scheduler")

Opened = TypeVar("Opened")

API_CONNECTIONS: Final = 4
RESTART_NS: Final = 1_000_000_000  # before a shard that failed runs again
MARGIN_S: Final = 5.0  # for a shard that has drained to leave


class Instance(Struct, frozen=True, eq=False, kw_only=True):
    """What a running scheduler needs of its instance."""

    jobs: JobStore
    source: WorkSource
    tenant_id: UUID
    clock: WallClock
    now_us: Callable[[], int]  # by the clock of the database
    vitals: Vitals = field(default_factory=Vitals)  # of its shard


@asynccontextmanager
async def open_instance(
    config: SchedulerConfig, on_unavailable: Callable[[StoreError], None]
) -> AsyncIterator[Instance]:
    """An instance whose shard runs. Waits until the database is available."""
    machine = SystemClock()

    async def wait_for(call: Callable[[], Awaitable[Opened]]) -> Opened:
        return await retry_until_available(machine, _noting(call, on_unavailable), None)

    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_database_url(config))
        if config.migrate:
            await wait_for(lambda: migrate_database(url))
        api = StoreConfig(url=url, role="api", connections=API_CONNECTIONS)
        database = await wait_for(lambda: Database.open(api))
        stack.push_async_callback(database.close)
        stores = PostgresStore(database)
        own_ids: set[UUID] = set()
        opened = await stack.enter_async_context(
            open_shard(_shard_config(config, url), None, own_ids.add)
        )
        distributor = await stack.enter_async_context(
            open_distributor(
                config.link_config, stores, machine, opened.clock, own_ids.__contains__
            )
        )
        stack.callback(distributor.attach(opened.desks))
        tenant_id = await wait_for(
            lambda: _find_tenant(stores.tenants, config, opened.clock.now_us())
        )
        if tenant_id is None:
            raise TenantNotFound(f"tenant {config.tenant_id} not found")
        if config.migrate:
            await wait_for(lambda: _grant_own_role(url, tenant_id))
        await stack.enter_async_context(_running(opened, config, url))
        yield Instance(
            jobs=stores.jobs,
            source=distributor,
            tenant_id=tenant_id,
            clock=machine,
            now_us=opened.clock.now_us,
            vitals=opened.shard.vitals,
        )


def _shard_config(config: SchedulerConfig, url: str) -> ShardDaemonConfig:
    return ShardDaemonConfig(
        store=StoreConfig(url=url, role="shard"),
        # Its own handlers have ended before the shard stops.
        shard=replace(config.shard, waits_for_workers=False),
        dispatch=config.dispatch,
        link=config.link_config,
    )


@asynccontextmanager
async def _database_url(config: SchedulerConfig) -> AsyncIterator[str]:
    """The URL of the database, which may be an embedded one."""
    if config.url is not None:
        yield config.url
        return
    server = await _start_server(EmbeddedConfig(home=config.home))
    try:
        yield server.url
    finally:
        await asyncio.to_thread(server.stop)


async def _start_server(config: EmbeddedConfig) -> EmbeddedPostgres:
    """Starts an embedded server. A thread cannot be cancelled: what it started is stopped."""
    starting = asyncio.ensure_future(asyncio.to_thread(EmbeddedPostgres.start, config))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await asyncio.to_thread(starting.result().stop)
        raise


def _noting(
    call: Callable[[], Awaitable[Opened]], on_unavailable: Callable[[StoreError], None]
) -> Callable[[], Awaitable[Opened]]:
    async def call_and_note() -> Opened:
        try:
            return await call()
        except StoreError as error:
            on_unavailable(error)
            raise

    return call_and_note


async def _find_tenant(tenants: TenantStore, config: SchedulerConfig, now_us: int) -> UUID | None:
    if config.tenant_id is None:
        return (await open_local_tenant(tenants, now_us)).tenant_id
    for tenant in await tenants.read([config.tenant_id]):
        return tenant.tenant_id
    return None


async def _grant_own_role(url: str, tenant_id: UUID) -> None:
    """Lets the role in the URL schedule in its own transactions, unless it has a tenant."""
    async with open_operator(url) as operator:
        await operator.grants.grant_session("scheduler", tenant_id)


@asynccontextmanager
async def _running(opened: OpenShard, config: SchedulerConfig, url: str) -> AsyncIterator[None]:
    """Runs a shard, and hands over what it owns at the end."""
    shard = opened.shard
    loop = asyncio.get_running_loop()
    running = loop.create_task(_keep_running(shard))
    retention = loop.create_task(run_retention(StoreConfig(url=url, role="shard")))
    try:
        yield
    finally:
        retention.cancel()
        shard.stop()
        try:
            await asyncio.wait([running], timeout=config.shard.drain_us / 1e6 + MARGIN_S)
        finally:
            running.cancel()
            await asyncio.wait([running, retention])


async def _keep_running(shard: Shard) -> None:
    """Runs a shard until it is stopped. Whatever it raises, it starts again without state."""
    while True:
        try:
            await shard.run()
        except Exception:
            log.exception("shard.failed")
        else:
            return
        await SystemClock().sleep(RESTART_NS)
