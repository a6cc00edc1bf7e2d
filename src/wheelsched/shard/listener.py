"""Beside load: hears of changes as they commit, and knows how far it has heard.

Invariant: freshness is claimed only up to the sending of a round trip that came back on the
listening connection. A listener that was cut off makes everything be read again.
"""

from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct

from wheelsched.errors import StoreError
from wheelsched.ports import Hint, HintSource
from wheelsched.shard.context import Context
from wheelsched.shard.freshness import Freshness
from wheelsched.shard.patience import LONGEST_PAUSE_NS

log = structlog.get_logger("wheelsched.shard")

Listen = Callable[[Callable[[Hint], None]], Awaitable[HintSource]]


class Outlets(Struct, frozen=True):
    """Whom to tell."""

    hint: Callable[[Hint], None]
    everything: Callable[[], Awaitable[None]]  # a hint may have been missed


class Listener:
    """Listens for hints."""

    def __init__(
        self, context: Context, listen: Listen, freshness: Freshness, outlets: Outlets
    ) -> None:
        self._context = context
        self._listen = listen
        self._freshness = freshness
        self._outlets = outlets

    async def run(self) -> None:
        """Listens until it is cancelled, on one connection after the other."""
        while True:
            try:
                await self._hear()
            except StoreError as error:
                self._freshness.lost()
                self._context.vitals.store.count_error(error)
                self._context.vitals.hints.reconnects += 1
                log.warning("hints.lost", error=str(error))
            await self._context.patience.pause(LONGEST_PAUSE_NS)

    async def _hear(self) -> None:
        source = await self._listen(self._receive)
        try:
            log.info("hints.opened")
            await self._outlets.everything()  # before anything is fresh again
            while True:
                sent_us = self._context.clock.now_us()
                await source.confirm()
                self._freshness.confirmed(sent_us, self._context.clock.error_us)
                self._context.vitals.hints.confirmed_at_us = self._context.tenure.now_us()
                await self._context.clock.sleep(self._context.config.confirm_us * 1_000)
        finally:
            await source.close()

    def _receive(self, hint: Hint) -> None:
        self._context.vitals.hints.received += 1
        self._outlets.hint(hint)
