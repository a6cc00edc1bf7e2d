"""Patience: how the stages meet a store that is away.

Invariant: what a stage asks of the store it asks again until it gets an answer, with growing
pauses, and never in a busy loop. An answer that the lease is gone ends the patience at once.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from random import Random
from typing import Generic, NamedTuple, TypeVar

import structlog

from wheelsched.errors import FenceRaised, LeaseLost, StoreError, StoreFault
from wheelsched.ports import Clock, Lease
from wheelsched.shard.tenure import Tenure
from wheelsched.vitals import Vitals

Answer = TypeVar("Answer")


Item = TypeVar("Item")


class InParts(NamedTuple, Generic[Answer, Item]):
    """The answers of several parts, and what the store refused of them."""

    answers: list[Answer]
    refused: list[Item]


log = structlog.get_logger("wheelsched.shard")

FIRST_PAUSE_NS = 50_000_000
LONGEST_PAUSE_NS = 1_000_000_000  # within the three seconds in which firing goes on again


class Patience:
    """Asks until there is an answer."""

    def __init__(self, clock: Clock, tenure: Tenure, vitals: Vitals, random: Random) -> None:
        self._clock = clock
        self._tenure = tenure
        self._vitals = vitals
        self._random = random

    async def insist(
        self, what: str, ask: Callable[[], Awaitable[Answer]], *, even_if_refused: bool = True
    ) -> Answer:
        """The answer to `ask`, however often it has to be asked; or `LeaseLost`, `FenceRaised`.

        Asking again does not mend a `StoreFault`: who can do without raises it instead.
        """
        pause_ns = FIRST_PAUSE_NS
        while True:
            try:
                return await ask()
            except (LeaseLost, FenceRaised):
                raise
            except StoreError as error:
                self._vitals.store.count_error(error)
                self._count_batch(what)
                if isinstance(error, StoreFault) and not even_if_refused:
                    raise
                log.warning("store.awaited", what=what, error=str(error))
            await self.pause(pause_ns)
            pause_ns = min(2 * pause_ns, LONGEST_PAUSE_NS)

    async def insist_leased(
        self, what: str, ask: Callable[[Lease], Awaitable[Answer]], *, even_if_refused: bool = True
    ) -> Answer:
        """The same for what names the lease: when its fence was raised, under the new one."""
        while True:
            lease = self._tenure.lease
            try:
                return await self.insist(what, partial(ask, lease), even_if_refused=even_if_refused)
            except FenceRaised:
                log.info("fence.raised", what=what)
            if self._tenure.lease == lease:  # whoever raised it has not heard so yet
                await self.pause(FIRST_PAUSE_NS)

    async def insist_in_parts(
        self,
        what: str,
        items: Sequence[Item],
        ask: Callable[[Sequence[Item]], Awaitable[Collection[Answer]]],
    ) -> InParts[Answer, Item]:
        """What `ask` gives for all items, some of which the store may refuse for good.

        A batch that it refuses is halved, until the one that is at fault stands alone: that one is
        left out, and named. `ask` itself insists, except on that.
        """
        try:
            return InParts(list(await ask(items)), [])
        except StoreFault:
            log.exception("store.refused", what=what, items=len(items))
        if len(items) == 1:
            return InParts([], [items[0]])
        half = len(items) // 2
        first = await self.insist_in_parts(what, items[:half], ask)
        second = await self.insist_in_parts(what, items[half:], ask)
        return InParts([*first.answers, *second.answers], [*first.refused, *second.refused])

    def _count_batch(self, what: str) -> None:
        store = self._vitals.store
        batches = {"horizon.load": store.loads, "run.arm": store.arms, "run.settle": store.settles}
        if what in batches:
            batches[what].errors += 1

    async def pause(self, most_ns: int) -> None:
        """Waits a while, not as long as everybody else."""
        await self._clock.sleep(self._random.randint(most_ns // 2, most_ns))
