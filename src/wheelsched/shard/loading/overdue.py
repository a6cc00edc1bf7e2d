"""Asks the database for due timers that are not armed.

Invariant: a shard reports the lateness that the database sees, not its own view: a timer that it
forgot or never read counts too. So do the timers of a partition that the shard believes to own, and
of one that the database says it owns, even if the two differ.
"""

from typing import Final

import structlog

from wheelsched.core.overdue import lateness_of
from wheelsched.errors import StoreError
from wheelsched.shard.context import Context

log = structlog.get_logger("wheelsched.shard")

LOOKS: Final = 2  # after an outage the first one finds what is about to be armed


class Overdue:
    """Updates the lateness in the vitals."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._alarming_looks = 0  # in a row

    async def run(self) -> None:
        """Checks until it is cancelled."""
        store, ownership = self._context.vitals.store, self._context.ownership
        store.unarmed_read_at_us = ownership.now_us()
        while True:
            await self._context.clock.sleep(self._context.config.overdue_us * 1_000)
            try:
                await self._check()
            except StoreError as error:
                store.count_error(error)
            else:
                store.unarmed_read_at_us = ownership.now_us()

    async def _check(self) -> None:
        context = self._context
        unarmed = await context.stores.timers.oldest_unarmed(await self._partitions())
        late = lateness_of(unarmed, context.clock.now_us())
        context.vitals.store.unarmed = late
        self._alarming_looks = self._alarming_looks + 1 if late.is_alarming else 0
        if self._alarming_looks == LOOKS:
            log.error("arming.late", timer_us=late.timer_us, retry_us=late.retry_us)

    async def _partitions(self) -> set[int]:
        """The partitions that the shard holds, and those that it has by the database."""
        ownership = self._context.ownership
        survey = await self._context.stores.leases.survey()
        ours = {each.partition for each in survey.partitions if each.owner == ownership.shard_id}
        return ours | ownership.partitions
