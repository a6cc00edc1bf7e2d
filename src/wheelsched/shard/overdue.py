"""Beside arm: asks the database whether anything that is due waits to be armed.

Invariant: what a shard says of its lateness is what the database has, not what the shard knows: a
timer that it forgot, or never read, counts.
"""

import structlog

from wheelsched.core.overdue import lateness_of
from wheelsched.errors import StoreError
from wheelsched.shard.context import Context

log = structlog.get_logger("wheelsched.shard")


class Overdue:
    """Keeps the vitals informed."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        """Looks until it is cancelled."""
        store, tenure = self._context.vitals.store, self._context.tenure
        store.unarmed_read_at_us = tenure.now_us()
        while True:
            await self._context.clock.sleep(self._context.config.overdue_us * 1_000)
            try:
                await self._look()
            except StoreError as error:
                store.count_error(error)
            else:
                store.unarmed_read_at_us = tenure.now_us()

    async def _look(self) -> None:
        context = self._context
        partitions = context.tenure.partitions
        unarmed = await context.stores.timers.oldest_unarmed(partitions)
        late = lateness_of(unarmed, context.clock.now_us())
        if late.is_alarming and not context.vitals.store.unarmed.is_alarming:
            log.error("arming.late", timer_us=late.timer_us, retry_us=late.retry_us)
        context.vitals.store.unarmed = late
