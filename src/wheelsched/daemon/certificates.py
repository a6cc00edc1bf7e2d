"""Certifies deaths: ends the leases of shards whose process this one has waited for.

Invariant: a certificate names only shards of a process that was waited for, so none of them can
send anything any more. Nobody waits for a certificate: while the database is away it is tried again
for as long as a lease lasts, and then the lease expires by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.config import StoreConfig
from wheelsched.daemon.parent import ShardRecord, record_for_parent
from wheelsched.errors import StoreError
from wheelsched.logs import LogLevel, write_logs
from wheelsched.store.for_shard.certificates import PostgresCertificates

log = structlog.get_logger("wheelsched.daemon")

CHECK_NS: Final = 5_000_000_000  # interval of the check that the connection works
FIRST_PAUSE_NS: Final = 50_000_000
LONGEST_PAUSE_NS: Final = 5_000_000_000
MOST_PENDING: Final = 1_024
SETTLE_S: Final = 1.0  # how long a process that ends waits for its last certificates


class Certifier:
    """Ends leases on a database connection that it keeps open."""

    def __init__(self, store: StoreConfig, lease_ttl_us: int) -> None:
        self._config = store
        self._ttl_ns = lease_ttl_us * 1_000
        self._machine = SystemClock()
        self._deadlines_ns: dict[UUID, int] = {}  # of the certificates that are not written yet
        self._has_work = asyncio.Event()
        self._is_settled = asyncio.Event()
        self._is_settled.set()

    def certify(self, shard_ids: Iterable[UUID]) -> None:
        """Ends the leases of these shards as soon as possible; their process was waited for."""
        until_ns = self._machine.now_ns() + self._ttl_ns
        for shard_id in shard_ids:
            if len(self._deadlines_ns) < MOST_PENDING:
                self._deadlines_ns[shard_id] = until_ns
        if self._deadlines_ns:
            self._is_settled.clear()
            self._has_work.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Works during the block, and for a moment longer if something is left to be written."""
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(self._run())
            try:
                yield
            finally:
                await self._settled_within(SETTLE_S)
                working.cancel()

    async def _settled_within(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._is_settled.wait()
        except TimeoutError:
            log.warning("certificate.abandoned", shards=[str(each) for each in self._deadlines_ns])

    async def _run(self) -> None:
        """Works on one connection after the other."""
        pause_ns = FIRST_PAUSE_NS
        while True:
            try:
                async with await PostgresCertificates.open(self._config) as certificates:
                    pause_ns = FIRST_PAUSE_NS
                    await self._work(certificates)
            except StoreError as error:
                log.debug("certifier.disconnected", error=str(error))
            self._forget_expired()
            await self._wait_for_work(pause_ns)
            pause_ns = min(pause_ns * 2, LONGEST_PAUSE_NS)
            if self._deadlines_ns:
                await self._machine.sleep(FIRST_PAUSE_NS)

    async def _work(self, certificates: PostgresCertificates) -> None:
        """Writes certificates until the connection fails."""
        while True:
            for shard_id in list(self._deadlines_ns):
                if await certificates.certify_death(shard_id):
                    log.warning("shard.certified_dead", dead=str(shard_id))
                self._forget(shard_id)
            if not await self._wait_for_work(CHECK_NS):
                await certificates.confirm()

    async def _wait_for_work(self, delay_ns: int) -> bool:
        """Waits for a certificate to write, for at most this long."""
        try:
            async with asyncio.timeout(delay_ns / 1_000_000_000):
                await self._has_work.wait()
        except TimeoutError:
            return False
        return True

    def _forget_expired(self) -> None:
        now_ns = self._machine.now_ns()
        for shard_id, until_ns in list(self._deadlines_ns.items()):
            if now_ns > until_ns:
                log.warning("certificate.expired", dead=str(shard_id))
                self._forget(shard_id)

    def _forget(self, shard_id: UUID) -> None:
        del self._deadlines_ns[shard_id]
        if not self._deadlines_ns:
            self._has_work.clear()
            self._is_settled.set()


class Certifiable(Struct, frozen=True, kw_only=True):
    """How the parent of a single shard ends its leases."""

    store: StoreConfig
    lease_ttl_us: int
    log_level: LogLevel


def report_to_parent(shard: Certifiable) -> Callable[[UUID], None]:
    """Tells the parent of this process how to end leases; returns how to tell it their ids."""
    record = record_for_parent()
    if record is None:
        return lambda shard_id: None
    record.describe(msgspec.json.encode(shard))
    return record.add


def certify_record(record: ShardRecord) -> None:
    """Ends the leases of a single shard that has died, for its parent.

    It gives up soon, because a restart of the shard waits for this process.
    """
    shard = msgspec.json.decode(record.document, type=Certifiable)
    write_logs(shard.log_level)
    asyncio.run(_certify(shard, record.shard_ids))


async def _certify(shard: Certifiable, shard_ids: Iterable[UUID]) -> None:
    certifier = Certifier(shard.store, shard.lease_ttl_us)
    certifier.certify(shard_ids)
    async with certifier.running():
        pass
