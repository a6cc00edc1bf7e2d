"""Listens for hints about changed jobs, and measures how fresh they are.

Invariant: hints are fresh up to the moment at which a round trip on the listening connection was
sent, once it has returned. After a lost connection, everything is read again.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from wheelsched.errors import StoreError
from wheelsched.flow import yielding
from wheelsched.ports import Hint, HintSource
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues

log = structlog.get_logger("wheelsched.shard")

RECONNECT_NS: Final = 1_000_000_000  # the longest pause before another connection

Listen = Callable[[Callable[[Hint], None]], Awaitable[HintSource]]


class Listener:
    """Listens for hints."""

    def __init__(self, context: Context, queues: Queues, listen: Listen) -> None:
        self._context = context
        self._queues = queues
        self._listen = listen

    async def run(self) -> None:
        """Listens until it is cancelled, on one connection after the other."""
        while True:
            try:
                await self._hear()
            except StoreError as error:
                self._context.hint_freshness.lost()
                self._context.vitals.store.count_error(error)
                self._context.vitals.hints.reconnects += 1
                log.warning("hints.lost", error=str(error))
            await self._context.store.pause(RECONNECT_NS)

    async def _hear(self) -> None:
        source = await self._listen(self._receive)
        try:
            log.info("hints.opened")
            await self._read_everything()  # before hints count as fresh again
            while True:
                sent_us = self._context.clock.now_us()
                await source.confirm()
                self._context.hint_freshness.confirmed(sent_us, self._context.clock.error_us)
                self._context.vitals.hints.confirmed_at_us = self._context.ownership.now_us()
                await self._context.clock.sleep(self._context.config.confirm_us * 1_000)
        finally:
            await source.close()

    def _receive(self, hint: Hint) -> None:
        context, queues = self._context, self._queues
        context.vitals.hints.received += 1
        if hint.job_id is None:
            queues.free_partitions.set()
        elif context.ownership.holds(hint.partition):
            context.changes.record(hint.job_id)
            if context.registry.has_any(hint.job_id):
                context.doubts.changed(hint.job_id)
            queues.reloads.put(hint.job_id)
            if hint.is_unplanned:
                queues.drafts.set()

    async def _read_everything(self) -> None:
        """Reads all jobs again: any hint may have been missed."""
        context = self._context
        context.changes.record_any()
        self._queues.reloads.put_everything()
        self._queues.drafts.set()
        async for job_ids in yielding(context.clock, context.registry.job_ids()):
            for job_id in job_ids:
                context.doubts.changed(job_id)
