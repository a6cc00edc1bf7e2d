"""The shard as a process, on Postgres and HTTP.

Invariant: everything opened here is closed here, in reverse order, whatever ends the program.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import SystemRandom
from typing import Final
from uuid import UUID

import structlog
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.config import DispatchConfig, LinkConfig, ProbeConfig, ShardConfig, StoreConfig
from wheelsched.core.targets.egress import read_listener
from wheelsched.daemon.bootstrap import (
    address_taken,
    open_clock,
    retry_until_available,
    stop_on_signals,
)
from wheelsched.daemon.garbage import Collector
from wheelsched.daemon.links import open_listener
from wheelsched.delivery.dispatchers import Dispatchers
from wheelsched.delivery.http.dispatcher import HttpDispatcher
from wheelsched.delivery.queue.dispatcher import QueueDispatcher
from wheelsched.errors import StoreError
from wheelsched.jobs.drafts import judge_draft
from wheelsched.metrics import shard_registry
from wheelsched.ports import Hint, HintSource
from wheelsched.ports.work import Desks
from wheelsched.probe import status_app
from wheelsched.shard.service import Environment, Shard
from wheelsched.store.connections.database import Database
from wheelsched.store.for_shard.hints import PostgresHints
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.retention import Retention
from wheelsched.store.schema.settings import read_settings
from wheelsched.vitals import Vitals

log = structlog.get_logger("wheelsched.daemon")

RETENTION_NS: Final = 3_600 * 1_000_000_000
POLL_NS: Final = 50_000_000


class ShardDaemonConfig(Struct, frozen=True, kw_only=True, tag="shard"):
    """The configuration of a shard process."""

    store: StoreConfig
    shard: ShardConfig = ShardConfig()
    dispatch: DispatchConfig = DispatchConfig()
    probe: ProbeConfig | None = None
    link: LinkConfig | None = None  # None: it hands no runs to workers of other processes


class OpenShard(Struct, frozen=True, eq=False, kw_only=True):
    """A shard that is ready to run. `desks` are where processes with workers take its runs."""

    shard: Shard
    desks: Desks
    clock: DatabaseClock


async def run_shard(
    config: ShardDaemonConfig,
    on_ready: Callable[[str], None] = lambda address: None,
    on_joining: Callable[[UUID], None] = lambda shard_id: None,
) -> None:
    """Runs a shard until SIGTERM or SIGINT; a second signal ends the process at once.

    `on_ready` is called with the address of its probe once it has started working, and `on_joining`
    with each new id of the shard before its lease exists.
    """
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    opening = open_shard(config, stopping, on_joining)
    async with opening as opened, asyncio.TaskGroup() as tasks:
        shard = opened.shard
        collector = Collector(SystemClock(), is_busy=lambda: shard.vitals.runs.orphans > 0)
        collecting = tasks.create_task(collector.run())
        retention = tasks.create_task(run_retention(config.store))
        announcing = tasks.create_task(_announce_when_ready(shard, on_ready))
        running = tasks.create_task(shard.run())
        stopped = tasks.create_task(stopping.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        shard.stop()
        await running
        for task in (collecting, retention, announcing, stopped):
            task.cancel()


@asynccontextmanager
async def open_shard(
    config: ShardDaemonConfig,
    stopping: asyncio.Event | None = None,
    on_joining: Callable[[UUID], None] = lambda shard_id: None,
) -> AsyncIterator[OpenShard]:
    """A shard on Postgres and HTTP, ready to run. Waits until the database is available."""
    machine = SystemClock()
    vitals = Vitals()
    async with AsyncExitStack() as stack:
        shard_config, dispatch = config.shard, config.dispatch
        if config.probe is not None:
            address = await stack.enter_async_context(_probe(config.probe, vitals, machine))
            shard_config = replace(shard_config, address=shard_config.address or address)
            dispatch = _avoiding(dispatch, address)
        database = await retry_until_available(
            machine, lambda: Database.open(config.store), stopping
        )
        stack.push_async_callback(database.close)
        store = PostgresStore(database)
        clock = await retry_until_available(
            machine, lambda: open_clock(machine, store.leases), stopping
        )
        queues = await stack.enter_async_context(QueueDispatcher(machine))
        listener = None
        if config.link is not None:
            listener = await stack.enter_async_context(
                open_listener(config.link, queues, store.links, machine)
            )
            dispatch = _avoiding(dispatch, f"tcp://{listener.listening}")
        else:
            log.info("link.disabled", advice="runs of queues wait; start with --link HOST:PORT")
        http = await stack.enter_async_context(HttpDispatcher(dispatch, clock.now_us))

        async def listen(on_hint: Callable[[Hint], None]) -> HintSource:
            return await PostgresHints.open(config.store, on_hint, database.connector)

        def join(shard_id: UUID) -> None:
            on_joining(shard_id)
            if listener is not None:
                listener.join(shard_id)

        environment = Environment(
            stores=store,
            listen=listen,
            validate=partial(judge_draft, rules=dispatch.egress.rules),
            dispatcher=Dispatchers(http, queues),
            machine=machine,
            clock=clock,
            random=SystemRandom(),
            on_joining=join,
            link=None if listener is None else listener.link,
        )
        shard = Shard(environment, shard_config, vitals)
        yield OpenShard(shard=shard, desks=queues, clock=clock)


def _avoiding(dispatch: DispatchConfig, url: str) -> DispatchConfig:
    """Keeps callbacks away from a listener of this process."""
    own = (*dispatch.egress.own, *filter(None, [read_listener(url)]))
    return replace(dispatch, egress=replace(dispatch.egress, own=own))


@asynccontextmanager
async def _probe(config: ProbeConfig, vitals: Vitals, machine: SystemClock) -> AsyncIterator[str]:
    """Serves the probe of a shard and yields its address."""
    app = status_app(
        shard_registry(vitals, machine), lambda: vitals.missing(machine.now_ns() // 1_000)
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            raise address_taken(config.host, config.port, error) from error
        host, port = runner.addresses[0][:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _announce_when_ready(shard: Shard, on_ready: Callable[[str], None]) -> None:
    machine = SystemClock()
    while shard.vitals.missing_to_begin(machine.now_ns() // 1_000):
        await machine.sleep(POLL_NS)
    on_ready(shard.address or "")


async def run_retention(config: StoreConfig) -> None:
    """Creates daily tables ahead and removes what is past retention, every hour."""
    machine = SystemClock()
    owner = StoreConfig(url=config.url, role="owner", connections=2)
    while True:
        try:
            async with await Database.open(owner) as database:
                retention = Retention(database)
                await retention.make_days_ahead()
                settings = await read_settings(database)
                await retention.drop_old_days(settings)
                await retention.remove_finished(settings.finished_days)
        except StoreError as error:
            log.warning("retention.failed", error=str(error))
        await machine.sleep(RETENTION_NS)
