"""Both ends of the links: the listener of a shard, and the distributor of a process with workers.

Invariant: a key is made for one process and is never written anywhere but into its row.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import SystemRandom
from uuid import UUID, uuid4

import structlog

from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.config import LinkConfig
from wheelsched.daemon.bootstrap import address_taken
from wheelsched.delivery.link.handshake import Identity, new_key
from wheelsched.delivery.link.links import Links
from wheelsched.delivery.link.server import LinkServer
from wheelsched.delivery.queue.distributor import Distributor
from wheelsched.delivery.queue.reports import StoredReports
from wheelsched.errors import LinkRefused
from wheelsched.ports import LinkStore, ShardLink, Stores
from wheelsched.ports.work import Desks

log = structlog.get_logger("wheelsched.daemon")


class LinkListener:
    """The listener of a shard: `link` is what the shard publishes about it."""

    def __init__(self, server: LinkServer, listening: str, link: ShardLink) -> None:
        self.listening = listening
        self.link = link
        self._server = server

    def join(self, shard_id: UUID) -> None:
        """The shard joins under a new id, and is reached under that only."""
        self._server.identify(Identity(shard_id, self.link.key))


@asynccontextmanager
async def open_listener(
    config: LinkConfig, desks: Desks, store: LinkStore, machine: SystemClock
) -> AsyncIterator[LinkListener]:
    """Accepts links to the desks of a shard."""

    async def find_process(process_id: UUID) -> Identity:
        key = await store.key_of(process_id)
        if key is None:
            raise LinkRefused(f"process {process_id} is not in the database")
        return Identity(process_id, key)

    async with LinkServer(desks, find_process, machine, config) as server:
        try:
            listening = await server.start()
        except OSError as error:
            raise address_taken(config.host, config.port, error) from error
        link = ShardLink(config.address or listening, new_key())
        log.info("link.listening", address=link.address)
        yield LinkListener(server, listening, link)


@asynccontextmanager
async def open_distributor(
    config: LinkConfig,
    stores: Stores,
    machine: SystemClock,
    clock: DatabaseClock,
    is_local: Callable[[UUID], bool] = lambda shard_id: False,
) -> AsyncIterator[Distributor]:
    """The runs of all shards that accept links, for the workers of this process.

    `is_local` identifies the shards of this process, which need no link.
    """
    reports = StoredReports(stores.history, stores.jobs, clock.now_us, SystemRandom())
    distributor = Distributor(reports, machine)
    process = Identity(uuid4(), new_key())
    links = Links(process, stores.links, distributor.attach, machine, config)
    links.is_local = is_local
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(distributor.run()), tasks.create_task(links.run())]
        try:
            yield distributor
        finally:
            for task in running:
                task.cancel()
