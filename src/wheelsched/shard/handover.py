"""Hand-over: partitions that go to another shard while everybody lives.

Invariant: every unfinished run of the partitions is either written as carried by this shard, which
then brings it to its end, or left armed for the next owner, or has an end that is written before.
So none is sent by both, and none that is due in the second of the hand-over waits for it.
"""

from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import structlog

from wheelsched.core.duration import SECOND
from wheelsched.core.model import RunKey
from wheelsched.core.partition import partition_of
from wheelsched.core.policy import OnOverlap
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.portions import PORTION, in_portions
from wheelsched.shard.settle import Settle

log = structlog.get_logger("wheelsched.shard")

# What is due within it is carried. No longer than what an acknowledged change has to precede.
CARRIED_US = SECOND

# Between two looks at whether every end that was decided is written.
WRITING_NS = 10_000_000


Forget = Callable[[Collection[int]], Awaitable[None]]  # what waits and is watched in partitions


class HandOver:
    """Hands partitions over."""

    def __init__(self, context: Context, settle: Settle, forget: Forget) -> None:
        self._context = context
        self._settle = settle
        self._forget = forget

    async def __call__(self, partitions: Collection[int], *, is_leaving: bool = False) -> None:
        """Gives partitions up, after what is armed for them is in good hands."""
        context, tenure = self._context, self._context.tenure
        async with context.arming.closed():
            tenure.drop(partitions)
            await self._forget(partitions)
            until_us = context.clock.now_us() + CARRIED_US
            carried = await self._let_go(partitions, until_us)
            await self._settle.carry(carried)
            while context.unfinished.has_ruled(partitions):
                await context.clock.sleep(WRITING_NS)
            tenure.lease = await context.patience.insist(
                "partition.release",
                lambda: context.stores.leases.release(
                    tenure.lease, partitions, is_leaving=is_leaving
                ),
            )
        context.vitals.tenure.handovers += len(partitions)
        log.info("partitions.released", count=len(partitions), carried=len(carried))

    async def _let_go(self, partitions: Collection[int], until_us: int) -> list[ArmedRun]:
        """Forgets what is armed for these partitions, except what is carried to its end.

        That is what was sent, and what is due by `until_us` with nothing of its job in its way.
        What is sent meanwhile was armed when this began: it is met as one or the other. What the
        next owner may cancel in favour of a later run is left to it, unless it was sent: nobody
        would tell this shard. That is a further attempt, and whatever `overlap=cancel` is about.
        """
        carried: dict[RunKey, ArmedRun] = {}
        async for job_ids in in_portions(self._context.clock, self._context.unfinished.job_ids()):
            for job_id in job_ids:
                if partition_of(job_id) in partitions:
                    await self._forget_crowd(job_id)
                    self._let_go_of(job_id, until_us, carried)
        return list(carried.values())

    async def _forget_crowd(self, job_id: UUID) -> None:
        """Of a job with very many armed runs, which wait for others of it, forgets them in small
        portions. Whatever is sent meanwhile is met afterwards."""
        unfinished = self._context.unfinished
        if unfinished.armed_count <= PORTION or unfinished.is_idle(job_id):
            return
        armed = unfinished.armed_of(job_id)
        if len(armed) > PORTION:
            async for portion in in_portions(self._context.clock, armed):
                unfinished.forget(run for run in portion if unfinished.find_armed(run.key) is run)

    def _let_go_of(self, job_id: UUID, until_us: int, carried: dict[RunKey, ArmedRun]) -> None:
        unfinished = self._context.unfinished
        is_clear = unfinished.is_idle(job_id)
        for run in unfinished.armed_of(job_id):
            if run.key in carried:
                continue  # the job was looked at before
            is_soon = run.fire_at_us <= until_us
            if is_soon and is_clear and run.is_first and not _may_be_cancelled(run):
                is_clear = False  # overlap decides about the next
                carried[run.key] = run
            else:
                unfinished.forget([run])
        for live in unfinished.live_of(job_id):
            sent = live.armed
            if sent is not None and (sent.started_us is not None or not _may_be_cancelled(sent)):
                carried[live.key] = sent
                continue
            if sent is not None:  # not yet: it waits for a place at its target
                unfinished.forget([sent])
            unfinished.end(live.key)


def _may_be_cancelled(run: ArmedRun) -> bool:
    """Whether a later run of its job may end it."""
    return run.rules.overlap.policy is OnOverlap.CANCEL
