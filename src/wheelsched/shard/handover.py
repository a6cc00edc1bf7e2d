"""Hand-over: partitions that go to another shard while everybody lives.

Invariant: every unfinished run of the partitions is either written as carried by this shard, which
then brings it to its end, or left armed for the next owner, or has an end that is written before.
So none is sent by both, and none that is due in the second of the hand-over waits for it.
"""

from collections.abc import Awaitable, Callable, Collection

import structlog
from msgspec import Struct

from wheelsched.core.duration import SECOND
from wheelsched.shard.context import Context
from wheelsched.shard.fire import Fire
from wheelsched.shard.settle import Settle

log = structlog.get_logger("wheelsched.shard")

# What is due within it is carried. No longer than what an acknowledged change has to precede.
CARRIED_US = SECOND

# Between two looks at whether every end that was decided is written.
WRITING_NS = 10_000_000


class Stages(Struct, frozen=True, kw_only=True):
    """The stages that know of runs."""

    fire: Fire
    settle: Settle
    forget: Callable[[Collection[int]], Awaitable[None]]  # what waits and is watched in partitions


class HandOver:
    """Hands partitions over."""

    def __init__(self, context: Context, stages: Stages) -> None:
        self._context = context
        self._stages = stages

    async def __call__(self, partitions: Collection[int], *, is_leaving: bool = False) -> None:
        """Gives partitions up, after what is armed for them is in good hands."""
        context, tenure = self._context, self._context.tenure
        async with context.arming.closed():
            tenure.drop(partitions)
            await self._stages.forget(partitions)
            until_us = context.clock.now_us() + CARRIED_US
            carried = await self._stages.fire.let_go(partitions, until_us)
            await self._stages.settle.carry(carried)
            while context.unfinished.has_judged(partitions):
                await context.clock.sleep(WRITING_NS)
            tenure.lease = await context.patience.insist(
                "partition.release",
                lambda: context.stores.leases.release(
                    tenure.lease, partitions, is_leaving=is_leaving
                ),
            )
        context.vitals.tenure.handovers += len(partitions)
        log.info("partitions.released", count=len(partitions), carried=len(carried))
