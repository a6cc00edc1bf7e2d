"""Renews the lease of a shard, every second and whenever the lease connection has ended.

Invariant: nothing else that the shard does delays a renewal. A failed renewal is repeated soon, and
never extends trust.
"""

import asyncio
from typing import Final

import structlog

from wheelsched.errors import LeaseLost, StoreError
from wheelsched.shard.context import Context

log = structlog.get_logger("wheelsched.shard")

RENEWALS_PER_TTL: Final = 5
FIRST_PAUSE_NS: Final = 10_000_000  # after a renewal that failed; it doubles each time
LONGEST_PAUSE_NS: Final = 500_000_000


class Renew:
    """Keeps the lease."""

    def __init__(self, context: Context, other_server: asyncio.Event) -> None:
        """`other_server` is set when another server, or another lifetime of it, has renewed."""
        self._context = context
        self._other_server = other_server
        self._interval_ns = context.ownership.terms.ttl_us * 1_000 // RENEWALS_PER_TTL
        self._pause_ns = FIRST_PAUSE_NS

    async def run(self) -> None:
        """Renews until it is cancelled or the lease is lost."""
        while True:
            if await self._renew():
                self._pause_ns = FIRST_PAUSE_NS
                await self._wait_for_interval_or_disconnect()
            else:
                await self._context.clock.sleep(self._pause_ns)
                longest_ns = min(LONGEST_PAUSE_NS, self._interval_ns)
                self._pause_ns = min(2 * self._pause_ns, longest_ns)

    async def _renew(self) -> bool:
        """Renews once; returns whether the database confirmed it."""
        ownership, leases = self._context.ownership, self._context.stores.leases
        sent_us, lease = ownership.now_us(), ownership.lease
        try:
            renewal = await leases.renew(lease, ownership.terms.ttl_us, ownership.renewals)
            is_other_server = ownership.renewed(sent_us, lease, renewal)
        except LeaseLost as error:
            ownership.lose()
            log.warning("lease.lost", shard=str(ownership.shard_id), reason=str(error))
            raise
        except StoreError as error:
            self._context.vitals.store.count_error(error)
            log.warning("lease.renewal_failed", error=str(error), left_us=ownership.trust_left_us)
            return False
        if is_other_server:
            log.warning("database.restarted", shard=str(ownership.shard_id))
            self._other_server.set()
        return True

    async def _wait_for_interval_or_disconnect(self) -> None:
        clock, leases = self._context.clock, self._context.stores.leases
        async with asyncio.TaskGroup() as tasks:
            interval = tasks.create_task(clock.sleep(self._interval_ns))
            disconnect = tasks.create_task(leases.wait_disconnected())
            await asyncio.wait({interval, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            is_due = interval.done()
            interval.cancel()
            disconnect.cancel()
        if not is_due:
            log.warning("lease.disconnected", left_us=self._context.ownership.trust_left_us)
            await clock.sleep(FIRST_PAUSE_NS // 10)  # never a busy loop
