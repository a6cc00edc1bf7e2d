"""The shard as a process, on Postgres and HTTP.

Invariant: what is opened here is closed here, in the opposite order, whatever ends the program.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import SystemRandom
from typing import Final

import structlog
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.api.drafts import judge_draft
from wheelsched.clock import SystemClock
from wheelsched.config import DispatchConfig, ProbeConfig, ShardConfig, StoreConfig
from wheelsched.core.egress import read_listener
from wheelsched.daemon.garbage import Collector
from wheelsched.daemon.opening import (
    address_taken,
    awaited,
    heed_signals,
    open_clock,
)
from wheelsched.dispatch.http import HttpDispatcher
from wheelsched.errors import StoreError
from wheelsched.metrics import shard_registry
from wheelsched.ports import Hint, HintSource
from wheelsched.probe import status_app
from wheelsched.shard.service import Shard, Surroundings
from wheelsched.store.database import Database
from wheelsched.store.hints import PostgresHints
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.retention import Retention
from wheelsched.store.settings import read_settings
from wheelsched.vitals import Vitals

log = structlog.get_logger("wheelsched.daemon")

HOUSEKEEPING_NS: Final = 3_600 * 1_000_000_000
LOOK_NS: Final = 50_000_000


class ShardDaemonConfig(Struct, frozen=True, kw_only=True, tag="shard"):
    """Everything that a shard process is told."""

    store: StoreConfig
    shard: ShardConfig = ShardConfig()
    dispatch: DispatchConfig = DispatchConfig()
    probe: ProbeConfig | None = None


async def run_shard(
    config: ShardDaemonConfig, on_ready: Callable[[str], None] = lambda address: None
) -> None:
    """Runs a shard until SIGTERM or SIGINT; a second one ends the process at once.

    `on_ready` is called with the address of its probe when it has begun to work.
    """
    stopping = asyncio.Event()
    heed_signals(stopping)
    async with open_shard(config, stopping) as shard, asyncio.TaskGroup() as tasks:
        collecting = tasks.create_task(Collector(SystemClock()).run())
        keeping = tasks.create_task(_keep_house(config.store))
        telling = tasks.create_task(_tell_when_ready(shard, on_ready))
        running = tasks.create_task(shard.run())
        stopped = tasks.create_task(stopping.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        shard.stop()
        await running
        for task in (collecting, keeping, telling, stopped):
            task.cancel()


@asynccontextmanager
async def open_shard(
    config: ShardDaemonConfig, stopping: asyncio.Event | None = None
) -> AsyncIterator[Shard]:
    """A shard on Postgres and HTTP, ready to run. Waits for a database that is away."""
    machine = SystemClock()
    vitals = Vitals()
    async with AsyncExitStack() as stack:
        told, dispatch = config.shard, config.dispatch
        if config.probe is not None:
            address = await stack.enter_async_context(_probe(config.probe, vitals, machine))
            told = replace(told, address=told.address or address)
            own = (*dispatch.egress.own, *filter(None, [read_listener(address)]))
            dispatch = replace(dispatch, egress=replace(dispatch.egress, own=own))
        database = await awaited(machine, lambda: Database.open(config.store), stopping)
        stack.push_async_callback(database.close)
        store = PostgresStore(database)
        clock = await awaited(machine, lambda: open_clock(machine, store.leases), stopping)
        dispatcher = await stack.enter_async_context(HttpDispatcher(dispatch, clock.now_us))

        async def listen(on_hint: Callable[[Hint], None]) -> HintSource:
            return await PostgresHints.open(config.store, on_hint)

        surroundings = Surroundings(
            stores=store,
            listen=listen,
            judge=partial(judge_draft, rules=dispatch.egress.rules),
            dispatcher=dispatcher,
            machine=machine,
            clock=clock,
            random=SystemRandom(),
        )
        yield Shard(surroundings, told, vitals)


@asynccontextmanager
async def _probe(config: ProbeConfig, vitals: Vitals, machine: SystemClock) -> AsyncIterator[str]:
    """Metrics and health of a shard, on a port of their own; gives its address."""
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


async def _tell_when_ready(shard: Shard, on_ready: Callable[[str], None]) -> None:
    machine = SystemClock()
    while shard.vitals.missing_to_begin(machine.now_ns() // 1_000):
        await machine.sleep(LOOK_NS)
    on_ready(shard.address or "")


async def _keep_house(config: StoreConfig) -> None:
    """Makes the tables of coming days, and removes what is past retention, every hour."""
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
        await machine.sleep(HOUSEKEEPING_NS)
