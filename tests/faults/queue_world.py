"""A world with queues: shards that the API reaches over proxies, and workers that pull."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Iterable
from pathlib import Path

from msgspec.structs import replace
from tests.checker.records import Arrival
from tests.faults.client import now_us
from tests.faults.judge import Observation
from tests.faults.processes import POLL_S, Program, Shard
from tests.faults.records import Records
from tests.faults.tenants import Tenant
from tests.faults.world import World
from tests.proxy import PortProxy
from tests.waiting import WAIT_LIMIT_S

PULLER = Path(__file__).with_name("puller.py")
WAKE_US = 3_000_000  # within which a worker has read what was left in its sockets
PULLERS = ("puller-1", "puller-2")


class LinkedShard(Shard):
    """A shard with a link, which others reach at another port."""

    link_port = 0
    reached_port = 0

    @property
    def options(self) -> tuple[str, ...]:  # type: ignore[override] # known when it is started
        link, reached = f"127.0.0.1:{self.link_port}", f"127.0.0.1:{self.reached_port}"
        return ("--link", link, "--link-address", reached)


class Puller(Program):
    """A worker that pulls, and what it writes down."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory / f"{name}.log")
        self._path = directory / f"{name}.records"
        self.records = Records(self._path)
        self.calm_path = self._path.with_suffix(".calm")

    async def run(self, url: str, tenants: Iterable[Tenant]) -> None:
        tokens = [f"{tenant.tenant_id}={tenant.token}" for tenant in tenants]
        command = [sys.executable, str(PULLER), str(self._path), self.name, url, *tokens]
        before = self.log.read_text().count("pulling") if self.log.exists() else 0
        await self.start(command, {})
        async with asyncio.timeout(WAIT_LIMIT_S):
            while self.log.read_text().count("pulling") <= before:
                assert self.is_running, self.log.read_text()[-2_000:]
                await asyncio.sleep(POLL_S)

    def count(self, queue: str) -> int:
        """How many runs of a queue it has got."""
        return self.records.count(f'"queue":"{queue}"'.encode())


class QueueWorld(World):
    """Two workers pull from the API, which has links to all shards."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # as they are
        self.shard_type = LinkedShard
        self.links: dict[str, PortProxy] = {}
        self._frozen: tuple[str, int, int] | None = None  # which worker was, and when
        self.pullers = {name: Puller(name, self.directory) for name in PULLERS}

    @property
    def records(self) -> tuple[Records, ...]:
        pulled = (puller.records for puller in self.pullers.values())
        return (*super().records, *pulled)

    async def link(self, shard: Shard) -> None:
        assert isinstance(shard, LinkedShard)
        shard.link_port = self._reserve_port()
        proxy = await self._stack.enter_async_context(PortProxy(shard.link_port))
        self.links[shard.name] = proxy
        shard.reached_port = proxy.port

    async def start_puller(self, name: str) -> None:
        """Starts a worker, or starts it again."""
        url = f"http://127.0.0.1:{self.api.port}"
        await self.pullers[name].run(url, [client.tenant for client in self.clients.each])

    async def until_pulled(self, queue: str, count: int) -> None:
        """Waits until so many more runs of a queue have come to workers that pull."""
        before = self._pulled(queue)
        async with asyncio.timeout(WAIT_LIMIT_S):
            while self._pulled(queue) < before + count:
                await asyncio.sleep(POLL_S)

    def _pulled(self, queue: str) -> int:
        return sum(puller.count(queue) for puller in self.pullers.values())

    async def freeze_puller(self, name: str, until: Awaitable[None]) -> None:
        """SIGSTOP, and SIGCONT when something has happened."""
        from_us = now_us()
        self.pullers[name].signal(signal.SIGSTOP)
        await until
        self.pullers[name].signal(signal.SIGCONT)
        self._frozen = (name, from_us, now_us())

    async def dump(self, healed_us: int) -> Observation:
        seen = await super().dump(healed_us)
        arrivals = tuple(map(self._as_handed_out, seen.history.arrivals))
        return replace(seen, history=replace(seen.history, arrivals=arrivals))

    def _as_handed_out(self, arrival: Arrival) -> Arrival:
        """What was sent to a worker while it was frozen was in its socket until it woke up: it
        arrived when it was sent, which is when it was due."""
        if self._frozen is None:
            return arrival
        name, from_us, until_us = self._frozen
        is_left = until_us <= arrival.at_us <= until_us + WAKE_US and arrival.due_us < until_us
        if arrival.worker != name or arrival.attempt > 1 or not is_left:
            return arrival
        return replace(arrival, at_us=max(arrival.due_us, from_us))

    async def heal(self) -> int:
        for proxy in self.links.values():
            proxy.heal()
        for name, puller in self.pullers.items():
            puller.calm_path.touch()
            if not puller.is_running:
                await self.start_puller(name)
        return await super().heal()

    async def quiesce(self, healed_us: int) -> None:
        await super().quiesce(healed_us)
        for puller in self.pullers.values():
            if puller.is_running:
                await puller.stop()

    async def close(self) -> None:
        for puller in self.pullers.values():
            if puller.is_running:
                await puller.kill()
        await super().close()
