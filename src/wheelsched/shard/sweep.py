"""Stage *sweep*: finds what a dead shard or a silent worker left behind.

Invariant: the unfinished runs of a partition are known before anything new of it is armed, and
those of a job taken up before anything new of that job is.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from uuid import UUID

import structlog
from msgspec import Struct, field

from wheelsched.core.model import Run, RunKey
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import StoreTimeout
from wheelsched.ports import Lease, Mark
from wheelsched.shard import take_up, watch
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.left_behind import Reminder
from wheelsched.shard.patience import FIRST_PAUSE_NS
from wheelsched.shard.portions import in_portions
from wheelsched.shard.preparation import Preparation
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.retries import Retries
from wheelsched.shard.take_up import TakeUp
from wheelsched.shard.watch import Watch

log = structlog.get_logger("wheelsched.shard")

PAGE = 5_000  # runs, of all partitions together
MOST_COMPARED = 20_000  # armed runs; more are compared when the crowd has gone


class Page(NamedTuple):
    """Unfinished runs, and the partitions that have no others."""

    keys: Sequence[RunKey]
    ended: frozenset[int]


class PageSize(Struct):
    """How much is asked for at once: after a page that took too long a quarter, which grows again
    while the database keeps up; more slowly each time."""

    partitions: int = PARTITIONS
    runs: int = field(default_factory=lambda: PAGE)
    in_time: int = 0  # pages since it changed
    grows_after: int = 4  # of those

    def shrink(self) -> None:
        self.partitions = max(self.partitions // 4, 1)
        self.runs = max(self.runs // 4, 1)
        self.in_time = 0
        self.grows_after *= 2

    def grow(self) -> None:
        self.in_time += 1
        if self.in_time == self.grows_after:
            self.partitions = min(2 * self.partitions, PARTITIONS)
            self.runs = min(2 * self.runs, PAGE)
            self.in_time = 0


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
            async for page in self._unfinished(gained):
                await self._learn(page)

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
            # A backlog may wait for days: what is compared then is what it does not belong to, and
            # what the next owner would have to look for.
            is_backlog = known > MOST_COMPARED
            is_calm = known - unfinished.waiting_count <= MOST_COMPARED
            if is_calm and not self._outlets.is_crowded() and context.tenure.is_trusted:
                async with context.arming.closed():
                    await self._take_up_forgotten(
                        context.tenure.ready_partitions, is_first=is_backlog
                    )
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

    async def _take_up_forgotten(
        self, partitions: Collection[int], *, is_first: bool = False
    ) -> None:
        """Takes up every unfinished run of the partitions that nobody here knows of."""
        unfinished = self._context.unfinished
        async for page in self._unfinished(partitions, is_first=is_first):
            unknown = [
                key for key in page.keys if not unfinished.knows(key) and key not in unfinished.left
            ]
            if unknown:
                await self._taker.take_up(unknown)

    async def _learn(self, page: Page) -> None:
        """Learns of unfinished runs of partitions that were gained. A partition that was read to
        its end is ready: new runs of it may be armed.

        One that has been given up meanwhile is not looked at, though it may be ours again by now.
        """
        context, unfinished = self._context, self._context.unfinished
        async for keys in in_portions(context.clock, page.keys):
            for key in keys:
                partition = partition_of(key.job_id)
                is_ours = context.tenure.holds(partition) and partition not in self._gained
                if is_ours and not unfinished.knows(key):
                    unfinished.left.add(key, partition)
        noted = map(unfinished.left.noted_in, page.ended - self._gained)
        async for job_ids in in_portions(context.clock, chain.from_iterable(noted)):
            for job_id in job_ids:
                unfinished.left.line_up(job_id)
        known = page.ended - self._gained
        context.tenure.ready(known)
        if known:
            await self._outlets.load(known & context.tenure.partitions)

    async def _unfinished(
        self, partitions: Collection[int], *, is_first: bool = False
    ) -> AsyncIterator[Page]:
        """The unfinished runs of the partitions by the database, page by page.

        A page has some of each partition that was not read to its end. When the database does not
        give it in time, the next one is of fewer partitions, and has fewer runs.
        """
        positions: dict[int, RunKey] = {}
        left, page = sorted(partitions), PageSize()
        while left:
            wanted = left[: page.partitions]
            limit = max(page.runs // len(wanted), 1)
            keys = await self._list_unfinished(wanted, limit, positions, is_first=is_first)
            if keys is None:
                page.shrink()
                left = [*left[len(wanted) :], *wanted]  # the others do not wait for these
                continue
            page.grow()
            self._context.tenure.learned(wanted)
            found = Counter(partition_of(key.job_id) for key in keys)
            positions |= {partition_of(key.job_id): key for key in keys}
            ended = frozenset(partition for partition in wanted if found[partition] < limit)
            left = [partition for partition in left if partition not in ended]
            yield Page(keys, ended)

    async def _list_unfinished(
        self,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey],
        *,
        is_first: bool,
    ) -> list[RunKey] | None:
        """So many runs of each partition; None when that took too long."""

        async def ask(lease: Lease) -> list[RunKey] | None:
            try:
                return await self._context.stores.runs.list_unfinished(
                    lease, partitions, limit, after, is_first=is_first
                )
            except StoreTimeout as error:
                self._context.vitals.store.count_error(error)
                log.warning("sweep.slow", partitions=len(partitions), limit=limit)
                return None

        keys = await self._context.patience.insist_leased("run.sweep", ask)
        if keys is None:
            await self._context.patience.pause(FIRST_PAUSE_NS)
        return keys

    async def _take_back(self, runs: Sequence[Run]) -> None:
        """Takes up the runs of a shard that carried them and is gone."""
        for key in await self._taker.take_back(runs):
            self._outlets.ended(key)  # others may have waited for it
