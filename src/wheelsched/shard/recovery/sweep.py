"""Stage *sweep*: finds the unfinished runs of partitions that were gained, and forgotten runs.

Invariant: the shard arms a new run only after it knows the unfinished runs of the partition, and
has adopted those of the job.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import structlog
from msgspec import Struct

from wheelsched.core.model import RunKey
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import StoreTimeout
from wheelsched.flow import yielding
from wheelsched.ports import Mark
from wheelsched.shard.arming.request_builder import RequestBuilder
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues
from wheelsched.shard.recovery.adopt import Adopt

log = structlog.get_logger("wheelsched.shard")


class Page(NamedTuple):
    """Unfinished runs with their partitions, and the partitions that are read completely."""

    runs: Sequence[tuple[int, RunKey]]
    ended: frozenset[int]


class PageSize(Struct):
    """The size of a page. It shrinks to a quarter after a timeout, and grows again while the
    database keeps up, more slowly each time.

    The first page has some runs of each partition, which is all that most partitions ever have. If
    they have more, the next pages have as many runs of fewer partitions, so that the runs of some
    partitions can be adopted while the others are read.
    """

    largest: int
    partitions: int = PARTITIONS
    fitting: int = PARTITIONS  # partitions of which most are read completely
    runs: int = 0
    in_time: int = 0  # pages since the size changed
    grows_after: int = 4  # pages in time

    def __post_init__(self) -> None:
        self.runs = self.largest

    @property
    def width(self) -> int:
        return min(self.partitions, self.fitting)

    def fit(self, asked: int, ended: int, found: int) -> None:
        """Adapts to how many of the partitions were read completely, and how much they had."""
        if ended < asked // 2:
            self.fitting = max(asked // 4, 1)
        elif found < self.runs // 4:
            self.fitting = min(2 * self.fitting, PARTITIONS)

    def shrink(self) -> None:
        self.partitions = max(self.partitions // 4, 1)
        self.runs = max(self.runs // 4, 1)
        self.in_time = 0
        self.grows_after *= 2

    def grow(self) -> None:
        self.in_time += 1
        if self.in_time == self.grows_after:
            self.partitions = min(2 * self.partitions, PARTITIONS)
            self.runs = min(2 * self.runs, self.largest)
            self.in_time = 0


class Sweep:
    """Finds orphaned and forgotten runs."""

    def __init__(
        self, context: Context, queues: Queues, request_builder: RequestBuilder, adopt: Adopt
    ) -> None:
        self._context = context
        self._config = context.config.recovery
        self._queues = queues
        self._request_builder = request_builder
        self._adopt = adopt

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_learning())
            tasks.create_task(self._keep_comparing())

    async def _keep_learning(self) -> None:
        while True:
            async for page in self._unfinished_pages(await self._queues.gained.take()):
                await self._learn(page)

    async def _keep_comparing(self) -> None:
        """Compares the registry with the database from time to time.

        No claim is in progress meanwhile, so a run that is unfinished in the database and unknown
        to the shard was forgotten. It is adopted like an orphan.
        """
        context = self._context
        while True:
            await context.clock.sleep(context.config.refresh_us * 1_000)
            await self._request_builder.refresh()
            registry = context.registry
            known = registry.armed_count + len(registry.orphans)
            # A backlog may wait for days. Then only first attempts that are armed are compared: a
            # backlog has none of them, and the next owner would have to look for them.
            is_backlog = known > self._config.most_compared
            # Runs that wait for workers are first attempts too.
            for_workers = self._queues.outgoing.rooms.runs + len(self._queues.parked)
            is_calm = known - registry.waiting_count + for_workers <= self._config.most_compared
            if is_calm and not self._queues.results.is_backed_up and context.ownership.is_trusted:
                async with context.arming_lock.exclusive():
                    await self._adopt_forgotten(
                        context.ownership.ready_partitions, is_first=is_backlog
                    )
                    await self._mark()

    async def _mark(self) -> None:
        """Writes from which due time on there may be unfinished runs, so that the next owner has
        less to read.

        The mark does not pass a run whose end is still to be written. Runs that are handled
        elsewhere, or wait for an attempt, are stored apart and do not hold it back.
        """
        context = self._context
        now_us = context.clock.now_us()
        live_since_us = dict.fromkeys(context.ownership.ready_partitions, now_us)

        def hold(key: RunKey) -> None:
            partition = partition_of(key.job_id)
            if partition in live_since_us:
                live_since_us[partition] = min(live_since_us[partition], key.due_us)

        registry = context.registry
        # Rulings last: a run that is ruled during the loop is among them by then.
        for known in (registry.attempted, lambda: chain(registry.orphans, registry.rulings)):
            async for keys in yielding(context.clock, known()):
                for key in keys:
                    hold(key)
        marks = {
            partition: Mark(instant_us, context.ownership.next_token_in(partition))
            for partition, instant_us in live_since_us.items()
        }
        await context.store.advance(marks)

    async def _adopt_forgotten(
        self, partitions: Collection[int], *, is_first: bool = False
    ) -> None:
        """Adopts every unfinished run of the partitions that this shard does not know."""
        registry = self._context.registry
        async for page in self._unfinished_pages(partitions, is_first=is_first):
            unknown = [
                key
                for _, key in page.runs
                if not registry.knows(key) and key not in registry.orphans
            ]
            if unknown:
                await self._adopt.adopt(unknown)

    async def _learn(self, page: Page) -> None:
        """Adds the unfinished runs of gained partitions. A partition that is read completely is
        ready: new runs of it may be armed.

        A partition that was released meanwhile is skipped, even if it was gained again: then it is
        read anew.
        """
        context, registry = self._context, self._context.registry
        async for runs in yielding(context.clock, page.runs):
            for partition, key in runs:
                is_ours = (
                    context.ownership.holds(partition) and partition not in self._queues.gained
                )
                if is_ours and not registry.knows(key):
                    registry.orphans.add(key, partition)
        context.vitals.runs.orphans = len(registry.orphans)
        known = {each for each in page.ended if each not in self._queues.gained}
        noted = map(registry.orphans.take_noted, known)
        async for job_ids in yielding(context.clock, chain.from_iterable(noted)):
            for job_id in job_ids:
                registry.orphans.enqueue(job_id)
        known = {each for each in page.ended if each not in self._queues.gained}
        context.ownership.ready(known)
        self._queues.reloads.ready.put(*known)

    async def _unfinished_pages(
        self, partitions: Collection[int], *, is_first: bool = False
    ) -> AsyncIterator[Page]:
        """Reads the unfinished runs of partitions, page by page.

        A partition that is not read completely goes to the end of the line. After a timeout, the
        next page has fewer partitions and fewer runs.
        """
        positions: dict[int, RunKey] = {}
        remaining, page = sorted(partitions), PageSize(self._config.page)
        while remaining:
            wanted = remaining[: page.width]
            limit = max(page.runs // len(wanted), 1)
            keys = await self._list_unfinished(wanted, limit, positions, is_first=is_first)
            if keys is None:
                page.shrink()
                remaining = [*remaining[len(wanted) :], *wanted]  # the others go first
                continue
            page.grow()
            self._context.ownership.learned(wanted)
            runs = [(partition_of(key.job_id), key) for key in keys]
            found = Counter(partition for partition, _ in runs)
            positions |= dict(runs)
            ended = frozenset(partition for partition in wanted if found[partition] < limit)
            page.fit(len(wanted), len(ended), len(keys))
            unread = [partition for partition in wanted if partition not in ended]
            remaining = [*remaining[len(wanted) :], *unread]
            yield Page(runs, ended)

    async def _list_unfinished(
        self,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey],
        *,
        is_first: bool,
    ) -> list[RunKey] | None:
        """Reads up to `limit` runs of each partition; None after a timeout."""
        try:
            return await self._context.store.list_unfinished(
                partitions, limit, after, is_first=is_first
            )
        except StoreTimeout:
            log.warning("sweep.slow", partitions=len(partitions), limit=limit)
            await self._context.store.pause()
            return None
