"""Orphans: unfinished runs of a previous owner that are still to be adopted.

Invariant: a run is an orphan from the moment its partition is read until all orphans of its job are
adopted. No new run of such a job is armed. A stage that is about to arm one gives the job priority,
and gets a reminder of the due time or retry after the adoption.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sized
from heapq import heappop, heappush
from uuid import UUID

from msgspec import Struct, field

from wheelsched.core.model import RunKey
from wheelsched.flow import yielding
from wheelsched.ports import Clock
from wheelsched.shard.loading.upcoming import Reminder


class OrphanedJob(Struct, eq=False):
    """A job with orphaned runs."""

    job_id: UUID
    keys: list[RunKey]
    partition: int
    is_whole: bool = False  # all of its orphans are known
    is_taken: bool = False  # it is being adopted
    reminders: set[Reminder] = field(default_factory=set)


class Orphans:
    """Orphaned runs, by job: urgent jobs first, then the earliest."""

    def __init__(self) -> None:
        self.jobs: dict[UUID, OrphanedJob] = {}  # read by *arm* for every run: nearly always empty
        self._known: set[RunKey] = set()
        self._in: dict[int, set[UUID]] = {}  # the jobs that are not queued yet, by partition
        # The queued jobs by the due time of their first run; some of them are adopted already. A
        # crash leaves very many at few due times, so only the due times are in a heap.
        self._queued: dict[int, deque[UUID]] = {}
        self._earliest: list[int] = []
        self._urgent: deque[UUID] = deque()
        self.has_any = asyncio.Event()
        self.has_urgent = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._known)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._known

    def add(self, key: RunKey, partition: int) -> None:
        """Adds an orphan; call it for the earliest run of a job first."""
        if key in self._known:
            return
        self._known.add(key)
        job = self.jobs.get(key.job_id)
        if job is None:
            self.jobs[key.job_id] = OrphanedJob(key.job_id, [key], partition)
            self._in.setdefault(partition, set()).add(key.job_id)
        else:
            job.keys.append(key)

    def take_noted(self, partition: int) -> Collection[UUID]:
        """Takes the jobs of a partition that can be queued, since all of its orphans are known."""
        return self._in.pop(partition, ())

    def enqueue(self, job_id: UUID) -> None:
        """Queues a job for adoption, now that all of its orphans are known."""
        if (job := self.jobs.get(job_id)) is not None:
            job.is_whole = True
            due_us = job.keys[0].due_us
            if due_us not in self._queued:
                self._queued[due_us] = deque()
                heappush(self._earliest, due_us)
            self._queued[due_us].append(job_id)
            self.has_any.set()

    def prioritize(self, job_id: UUID, reminder: Reminder) -> None:
        """Adopts a job before the others, and keeps a reminder until then."""
        job = self.jobs[job_id]
        if not job.reminders and not job.is_taken:
            self._urgent.append(job_id)
            self.has_urgent.set()
        job.reminders.add(reminder)

    def take_urgent(self, most: int) -> list[OrphanedJob]:
        """Takes urgent jobs with about `most` runs in total, each with all of its runs."""
        taken = self._take_some(most, self._urgent, self._urgent.popleft)
        if not self._urgent:
            self.has_urgent.clear()
        return taken

    def take_earliest(self, most: int) -> list[OrphanedJob]:
        """Takes the earliest jobs with about `most` runs in total, each with all of its runs."""
        taken = self._take_some(most, self._earliest, self._pop_earliest)
        if not self._earliest:
            self.has_any.clear()
        return taken

    def adopted(self, job: OrphanedJob) -> Collection[Reminder]:
        """Removes a job that was adopted, and returns its reminders.

        If its partition was released meanwhile, and perhaps gained again, it stays to be adopted.
        """
        if self.jobs.get(job.job_id) is not job:
            return ()
        del self.jobs[job.job_id]
        self._known.difference_update(job.keys)
        return job.reminders

    async def forget(self, clock: Clock, partitions: Collection[int]) -> None:
        """Removes the jobs of partitions that are no longer ours."""
        for partition in partitions:
            self._in.pop(partition, None)
        async for some in yielding(clock, self.jobs.items()):
            for job_id, job in some:
                if job.partition in partitions:
                    self._known.difference_update(job.keys)
                    self.jobs.pop(job_id, None)

    def _pop_earliest(self) -> UUID:
        queued = self._queued[self._earliest[0]]
        job_id = queued.popleft()
        if not queued:
            del self._queued[heappop(self._earliest)]
        return job_id

    def _take_some(self, most: int, queue: Sized, next_id: Callable[[], UUID]) -> list[OrphanedJob]:
        taken: list[OrphanedJob] = []
        count = 0
        while queue and count < most:
            job = self.jobs.get(next_id())
            if job is None or job.is_taken or not job.is_whole:
                continue  # already taken; or released, and perhaps about to be gained again
            job.is_taken = True
            taken.append(job)
            count += len(job.keys)
        return taken
