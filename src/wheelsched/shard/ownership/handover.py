"""Hands partitions over to another live shard.

Invariant: each unfinished run of the partitions is either marked as carried, and this shard will
finish it; or stays armed for the next owner; or has a ruling that is written first. So no run is
sent by both shards, and a run that is due during the hand-over is not late because of it.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

import structlog

from wheelsched.core.model import RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.core.policies.policy import OnOverlap
from wheelsched.errors import LeaseLost
from wheelsched.flow import SLICE, yielding
from wheelsched.ports import Ending, Room, Settled
from wheelsched.shard.context import Context
from wheelsched.shard.loading.upcoming import Retries
from wheelsched.shard.recovery.external_runs import ExternalRuns
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.runs.phase import Phase
from wheelsched.values.duration import SECOND

log = structlog.get_logger("wheelsched.shard")

# Runs due within this time are carried. It must not exceed the notice of an acknowledged change.
CARRIED_US = SECOND

# Between two checks whether every ruling is written.
WRITING_NS = 10_000_000


class HandOver:
    """Hands partitions over."""

    def __init__(self, context: Context, retries: Retries, external_runs: ExternalRuns) -> None:
        self._context = context
        self._retries = retries
        self._external_runs = external_runs

    async def __call__(self, partitions: Collection[int], *, is_leaving: bool = False) -> None:
        """Releases partitions, after their runs are marked as carried or left armed."""
        context, ownership = self._context, self._context.ownership
        async with context.arming_lock.exclusive():
            ownership.drop(partitions)
            await self._forget(partitions)
            until_us = context.clock.now_us() + CARRIED_US
            carried = await self._let_go(partitions, until_us)
            await self._carry(carried)
            while context.registry.rulings.any_in(partitions):
                await context.clock.sleep(WRITING_NS)
            await context.store.release(partitions, is_leaving=is_leaving)
        context.vitals.ownership.handovers += len(partitions)
        log.info("partitions.released", count=len(partitions), carried=len(carried))

    async def start_over(self) -> None:
        """Forgets all partitions and everything unsent; only what was sent goes on to its end.

        The lease stays, and the database keeps its partitions for this shard. But if runs are
        carried and not sent yet, the lease ends: another owner may have adopted and sent them, and
        the database may have forgotten that. The next owner adopts them, with greater tokens.
        """
        context, ownership = self._context, self._context.ownership
        async with context.arming_lock.exclusive():
            partitions = ownership.partitions
            ownership.drop(partitions)
            await self._forget(partitions)
            sent = await self._let_go(partitions, None)
            if self._carries_unsent():
                ownership.lose()
                raise LeaseLost
            ownership.started_over(partitions)
        log.warning("shard.started_over", partitions=len(partitions), sent=len(sent))

    def _carries_unsent(self) -> bool:
        """Whether a run of a partition that was handed over is yet to be sent."""
        registry = self._context.registry
        return any(
            registry.any_armed(job_id) is not None
            or any(
                live.armed and live.armed.started_us is None for live in registry.live_of(job_id)
            )
            for job_id in tuple(registry.job_ids())  # a look may tidy the registry up
        )

    async def _forget(self, partitions: Collection[int]) -> None:
        """Forgets the runs that wait for a retry, for their worker or for adoption."""
        async for keys in yielding(self._context.clock, self._retries):
            for key in keys:
                if partition_of(key.job_id) in partitions:
                    self._retries.discard(key)
        await self._external_runs.forget(partitions)
        await self._context.registry.orphans.forget(self._context.clock, partitions)

    async def _carry(self, runs: Sequence[ArmedRun]) -> None:
        """Marks runs as carried: this shard finishes them, whoever owns their partition."""
        carried = Ending(state=RunState.RUNNING)
        batch = self._context.config.settle.batch
        for start in range(0, len(runs), batch):
            part = runs[start : start + batch]
            await self._context.store.settle([Settled(run.key, run.token, carried) for run in part])

    async def _let_go(self, partitions: Collection[int], until_us: int | None) -> list[ArmedRun]:
        """Forgets the runs of these partitions, and returns those to carry.

        With `until_us` None only runs that were sent are kept.

        Carried are the runs that were sent, and the runs that are due by `until_us` and have no
        other run of their job ahead. A run that is sent during the loop was armed when it began, so
        it is met as one or the other. An unsent run that the next owner may cancel in favour of a
        later run is not carried, because this shard would not learn of the cancellation: further
        attempts, and runs of jobs with `overlap=cancel`. A run of a queue is carried unsent only if
        there is a credit for it. Otherwise it may wait for long, and the next owner has it.
        """
        carried: dict[RunKey, ArmedRun] = {}
        credits_left = Credits()
        async for job_ids in yielding(self._context.clock, self._context.registry.job_ids()):
            for job_id in job_ids:
                if partition_of(job_id) in partitions:
                    await self._forget_large_job(job_id)
                    self._let_go_of(job_id, until_us, carried, credits_left)
        return list(carried.values())

    async def _forget_large_job(self, job_id: UUID) -> None:
        """Forgets the armed runs of a job with very many in slices. They wait for other runs of the
        job. A run that is sent meanwhile is handled afterwards."""
        registry = self._context.registry
        if registry.armed_count <= SLICE or registry.is_idle(job_id):
            return
        armed = registry.armed_of(job_id)
        if len(armed) > SLICE:
            async for some in yielding(self._context.clock, armed):
                registry.forget(run for run in some if registry.find_armed(run.key) is run)

    def _let_go_of(
        self,
        job_id: UUID,
        until_us: int | None,
        carried: dict[RunKey, ArmedRun],
        credits_left: "Credits",
    ) -> None:
        registry = self._context.registry
        is_clear = registry.is_idle(job_id)
        for run in registry.armed_of(job_id):
            if run.key in carried:
                continue  # the job was visited before
            is_soon = until_us is not None and run.fire_at_us <= until_us
            if until_us is not None and run.is_carried:
                carried[run.key] = run  # adopted from a dead carrier: no other shard would send it
            elif (
                is_soon
                and is_clear
                and run.is_first
                and not _may_be_cancelled(run)
                and credits_left.use(run)
            ):
                is_clear = False  # overlap decides about the next
                carried[run.key] = run
            else:
                registry.forget([run])
        for live in registry.live_of(job_id):
            sent = live.armed
            if sent is not None and sent.phase is Phase.WITHDRAWN:
                sent = None  # the attempt of a previous owner: the next one watches it
            if sent is not None and (
                live.key in carried  # the job was visited before, which has used the credit
                or sent.started_us is not None
                or (until_us is not None and _is_kept_unsent(sent, credits_left))
            ):
                carried[live.key] = sent
                continue
            if sent is not None:  # it is not sent yet, but queued for its target
                registry.forget([sent])
            registry.end(live.key)


def _is_kept_unsent(run: ArmedRun, credits_left: "Credits") -> bool:
    """Whether this shard carries a run that waits for its target. It must if the database says so
    already: no other shard would send it."""
    return run.is_carried or (not _may_be_cancelled(run) and credits_left.use(run))


def _may_be_cancelled(run: ArmedRun) -> bool:
    """Whether a later run of its job may end it."""
    return run.rules.overlap.policy is OnOverlap.CANCEL


class Credits:
    """The credits of queues that unsent runs will use which are carried."""

    def __init__(self) -> None:
        self._used = Counter[Room]()

    def use(self, run: ArmedRun) -> bool:
        """Whether a run can go at its time."""
        room = run.route.room
        if room is None:
            return True
        if self._used[room] >= room.credits:
            return False
        self._used[room] += 1
        return True
