"""Stage *sweep*: finds what a dead shard or a silent worker left behind.

Invariant: the unfinished runs of a partition are known before anything new of it is armed, and
those of a job taken up before anything new of that job is.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from itertools import chain
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import Run, RunKey
from wheelsched.core.partition import partition_of
from wheelsched.ports import Mark
from wheelsched.shard import take_up, watch
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.left_behind import Reminder
from wheelsched.shard.portions import in_portions
from wheelsched.shard.preparation import Preparation
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.retries import Retries
from wheelsched.shard.take_up import TakeUp
from wheelsched.shard.watch import Watch

PAGE = 5_000  # keys
MOST_COMPARED = 20_000  # armed runs; more are compared when the crowd has gone


class Outlets(Struct, frozen=True):
    """Where runs go from here."""

    fire: Callable[[ArmedRun], None]
    settle: Callable[[Report | Ruling], None]
    ended: Callable[[RunKey], None]
    load: Callable[[Collection[int]], Awaitable[None]]
    remind: Callable[[UUID, Reminder], None]  # a job can be armed: this is what was wanted of it
    is_crowded: Callable[[], bool]  # outcomes of a crowd wait to be written


class Sweep:
    """Finds what was left behind, and sees that it is taken up."""

    def __init__(
        self, context: Context, preparation: Preparation, retries: Retries, outlets: Outlets
    ) -> None:
        self._context = context
        self._preparation = preparation
        self._outlets = outlets
        self._gained: set[int] = set()
        self._woken = asyncio.Event()
        self._watch = Watch(
            context, retries, watch.Outlets(outlets.settle, outlets.ended, self._take_back)
        )
        self._taker = TakeUp(
            context,
            preparation,
            retries,
            take_up.Outlets(outlets.fire, outlets.settle, self._watch.take_up, outlets.remind),
        )

    def gained(self, partitions: Collection[int]) -> None:
        """Takes over the unfinished runs of partitions that have become ours, soon."""
        self._gained.update(partitions)
        self._woken.set()

    def watch(self, run: ArmedRun) -> None:
        """Waits for a worker that has accepted a run."""
        self._watch.add(run)

    async def forget(self, partitions: Collection[int]) -> None:
        """Watches nothing any more, and takes nothing up, in partitions that are ours no more."""
        await self._watch.forget(partitions)
        await self._context.unfinished.left.forget(self._context.clock, partitions)

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_learning())
            tasks.create_task(self._taker.run())
            tasks.create_task(self._watch.run())
            tasks.create_task(self._keep_in_step())

    async def _keep_learning(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            gained, self._gained = frozenset(self._gained), set()
            await self._learn(gained)
            known = gained - self._gained
            self._context.tenure.ready(known)
            await self._outlets.load(known & self._context.tenure.partitions)

    async def _keep_in_step(self) -> None:
        """Now and then compares what is known with what the database says.

        No claim is under way meanwhile: what is unfinished there and unknown here was forgotten,
        and is taken up as if somebody else had left it behind.
        """
        context = self._context
        while True:
            await context.clock.sleep(context.config.refresh_us * 1_000)
            await self._preparation.refresh()
            unfinished = context.unfinished
            known = unfinished.armed_count + len(unfinished.left)
            is_calm = known <= MOST_COMPARED and not self._outlets.is_crowded()
            if is_calm and context.tenure.is_trusted:
                async with context.arming.closed():
                    await self._take_up_forgotten(context.tenure.ready_partitions)
                    await self._mark()

    async def _mark(self) -> None:
        """Notes from where on unfinished runs are to be looked for: the next owner is quicker.

        It passes nothing of which the database is still to learn. Runs that go on elsewhere or wait
        for an attempt are written down apart, and hold nothing up.
        """
        context = self._context
        now_us = context.clock.now_us()
        live_since_us = dict.fromkeys(context.tenure.ready_partitions, now_us)

        def hold(key: RunKey) -> None:
            partition = partition_of(key.job_id)
            if partition in live_since_us:
                live_since_us[partition] = min(live_since_us[partition], key.due_us)

        unfinished = context.unfinished
        # Rulings last: a run that is ruled while the others are gone through is among them then.
        for known in (unfinished.attempted, lambda: chain(unfinished.left, unfinished.ruled)):
            async for keys in in_portions(context.clock, known()):
                for key in keys:
                    hold(key)
        marks = {
            partition: Mark(instant_us, context.tenure.next_token_in(partition))
            for partition, instant_us in live_since_us.items()
        }
        timers = context.stores.timers
        await context.patience.insist_leased(
            "partition.mark", lambda lease: timers.advance(lease, marks)
        )

    async def _take_up_forgotten(self, partitions: Collection[int]) -> None:
        """Takes up every unfinished run of the partitions that nobody here knows of."""
        unfinished = self._context.unfinished
        async for page in self._unfinished(partitions):
            unknown = [
                key for key in page if not unfinished.knows(key) and key not in unfinished.left
            ]
            if unknown:
                await self._taker.take_up(unknown)

    async def _learn(self, partitions: Collection[int]) -> None:
        """Learns of every unfinished run of partitions that were gained.

        One that has been given up meanwhile is not looked at, though it may be ours again by now.
        """
        context, unfinished = self._context, self._context.unfinished
        job_ids: set[UUID] = set()
        async for page in self._unfinished(partitions):
            async for keys in in_portions(context.clock, page):
                for key in keys:
                    partition = partition_of(key.job_id)
                    is_ours = context.tenure.holds(partition) and partition not in self._gained
                    if is_ours and not unfinished.knows(key):
                        unfinished.left.add(key, partition)
                        job_ids.add(key.job_id)
        async for portion in in_portions(context.clock, job_ids):
            for job_id in portion:
                unfinished.left.line_up(job_id)

    async def _unfinished(self, partitions: Collection[int]) -> AsyncIterator[list[RunKey]]:
        """The unfinished runs of the partitions by the database, page by page."""
        page = await self._list_unfinished(partitions, None)
        while page:
            yield page
            if len(page) < PAGE:
                return
            page = await self._list_unfinished(partitions, page[-1])

    async def _list_unfinished(
        self, partitions: Collection[int], after: RunKey | None
    ) -> list[RunKey]:
        runs = self._context.stores.runs
        return await self._context.patience.insist_leased(
            "run.sweep", lambda lease: runs.list_unfinished(lease, partitions, PAGE, after)
        )

    async def _take_back(self, runs: Sequence[Run]) -> None:
        """Takes up the runs of a shard that carried them and is gone."""
        for key in await self._taker.take_back(runs):
            self._outlets.ended(key)  # others may have waited for it
