"""The links of one process to all shards that accept some.

Invariant: there is one link for each shard with a row, and none for others. While the database does
not answer, the links stay as they are.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from wheelsched.config import LinkConfig
from wheelsched.delivery.link.client import Attach, LinkClient, ShardAddress
from wheelsched.delivery.link.handshake import Identity
from wheelsched.errors import LinkRefused, StoreError
from wheelsched.ports import PUBLISHED_US, LinkedShard, LinkStore
from wheelsched.ports.clock import Clock

log = structlog.get_logger("wheelsched.link")

LOOK_NS: Final = 1_000_000_000
PUBLISH_NS: Final = PUBLISHED_US * 1_000 // 4


class Links:
    """Publishes the key of a process, and keeps a link to each shard.

    `is_local` identifies the shards of this process, which need no link.
    """

    def __init__(
        self,
        process: Identity,
        store: LinkStore,
        attach: Attach,
        clock: Clock,
        config: LinkConfig,
    ) -> None:
        self.is_local: Callable[[UUID], bool] = lambda _: False
        self._process = process
        self._store = store
        self._attach = attach
        self._clock = clock
        self._config = config
        self._running: dict[LinkedShard, asyncio.Task[None]] = {}
        self._look_again = asyncio.Event()

    def look(self) -> None:
        """Looks for new shards at once."""
        self._look_again.set()

    async def run(self) -> None:
        """Keeps the links, until it is cancelled."""
        published_ns: int | None = None
        try:
            while True:
                self._look_again.clear()
                now_ns = self._clock.now_ns()
                try:
                    if published_ns is None or now_ns - published_ns >= PUBLISH_NS:
                        await self._store.publish(self._process.id, self._process.key)
                        published_ns = now_ns
                    self._follow(await self._store.shards())
                except StoreError as error:
                    log.warning("links.unread", error=str(error))
                await self._rest()
        finally:
            await self._end()

    async def _rest(self) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(LOOK_NS))
        asked = asyncio.ensure_future(self._look_again.wait())
        try:
            await asyncio.wait({sleeping, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            asked.cancel()

    def _follow(self, shards: list[LinkedShard]) -> None:
        wanted = [shard for shard in shards if not self.is_local(shard.shard_id)]
        for shard in [shard for shard, task in self._running.items() if task.done()]:
            error = self._running.pop(shard).exception()
            log.error("link.failed", shard=str(shard.shard_id), error=repr(error))
        for shard in [shard for shard in self._running if shard not in wanted]:
            self._running.pop(shard).cancel()
        for shard in [shard for shard in wanted if shard not in self._running]:
            try:
                client = self._client(shard)
            except LinkRefused as error:
                log.warning("link.refused", shard=str(shard.shard_id), error=str(error))
                continue
            self._running[shard] = asyncio.get_running_loop().create_task(client.run())

    def _client(self, shard: LinkedShard) -> LinkClient:
        host, _, port = shard.address.rpartition(":")
        if not port.isdigit():
            raise LinkRefused(f"the address of the shard is invalid: {shard.address!r}")
        address = ShardAddress(Identity(shard.shard_id, shard.key), host.strip("[]"), int(port))
        return LinkClient(self._process, address, self._attach, self._clock, self._config)

    async def _end(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._running.clear()
        try:
            async with asyncio.timeout(1.0):
                await self._store.withdraw(self._process.id)
        except (StoreError, TimeoutError) as error:
            log.warning("links.unread", error=str(error))
