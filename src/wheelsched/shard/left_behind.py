"""What others left behind: runs that are known to be unfinished and are still to be taken up.

Invariant: a run is left behind from the moment its partition is known until its job was taken up,
whole. Nothing new of such a job is armed: whoever wants to has it taken up before all others, and
is reminded afterwards of what it wanted.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from heapq import heappop, heappush
from uuid import UUID

from msgspec import Struct, field

from wheelsched.core.model import RunKey
from wheelsched.ports import Clock, Retry
from wheelsched.shard.portions import in_portions

Reminder = int | Retry  # a due time of the job, or a further attempt of one of its runs


class LeftJob(Struct, eq=False):
    """A job with runs that were left behind."""

    job_id: UUID
    keys: list[RunKey]
    partition: int
    is_whole: bool = False  # all of its runs were noted
    is_taken: bool = False  # it is being taken up
    reminders: set[Reminder] = field(default_factory=set)


class LeftBehind:
    """The runs of dead shards, by job: those that are wanted first, and then the earliest."""

    def __init__(self) -> None:
        self._jobs: dict[UUID, LeftJob] = {}
        self._known: set[RunKey] = set()
        self._in: dict[int, set[UUID]] = {}  # the jobs that are not lined up, by partition
        self._earliest: list[tuple[int, UUID]] = []  # a heap; some of it was taken up meanwhile
        self._wanted: deque[UUID] = deque()
        self.has_any = asyncio.Event()
        self.has_wanted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._known)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._known

    def has_job(self, job_id: UUID) -> bool:
        return job_id in self._jobs

    def add(self, key: RunKey, partition: int) -> None:
        """Notes a run that is to be taken up; of each job the earliest first."""
        if key in self._known:
            return
        self._known.add(key)
        job = self._jobs.get(key.job_id)
        if job is None:
            self._jobs[key.job_id] = LeftJob(key.job_id, [key], partition)
            self._in.setdefault(partition, set()).add(key.job_id)
        else:
            job.keys.append(key)

    def noted_in(self, partition: int) -> Collection[UUID]:
        """The jobs of a partition that are to be lined up when all of its runs were noted."""
        return self._in.pop(partition, ())

    def line_up(self, job_id: UUID) -> None:
        """Lets a job be taken up, now that all of its runs were noted."""
        if (job := self._jobs.get(job_id)) is not None:
            job.is_whole = True
            heappush(self._earliest, (job.keys[0].due_us, job_id))
            self.has_any.set()

    def want(self, job_id: UUID, reminder: Reminder) -> bool:
        """Has a job taken up before the others; False when nothing of it was left behind."""
        job = self._jobs.get(job_id)
        if job is None:
            return False
        if not job.reminders and not job.is_taken:
            self._wanted.append(job_id)
            self.has_wanted.set()
        job.reminders.add(reminder)
        return True

    def take_wanted(self, most: int) -> list[LeftJob]:
        """Jobs that somebody wants, with about so many runs: all runs of each."""
        taken: list[LeftJob] = []
        while self._wanted and _count(taken) < most:
            taken += self._take(self._wanted.popleft())
        if not self._wanted:
            self.has_wanted.clear()
        return taken

    def take_earliest(self, most: int) -> list[LeftJob]:
        """The jobs that have waited longest, with about so many runs: all runs of each."""
        taken: list[LeftJob] = []
        while self._earliest and _count(taken) < most:
            taken += self._take(heappop(self._earliest)[1])
        if not self._earliest:
            self.has_any.clear()
        return taken

    def taken_up(self, job: LeftJob) -> Collection[Reminder]:
        """Forgets a job that was taken, and gives what was wanted of it meanwhile.

        Unless it was given up meanwhile, and perhaps gained again: then it is another's to take.
        """
        if self._jobs.get(job.job_id) is not job:
            return ()
        del self._jobs[job.job_id]
        self._known.difference_update(job.keys)
        return job.reminders

    async def forget(self, clock: Clock, partitions: Collection[int]) -> None:
        """Forgets the jobs of partitions that are ours no more: they are left as they are."""
        for partition in partitions:
            self._in.pop(partition, None)
        async for portion in in_portions(clock, self._jobs.items()):
            for job_id, job in portion:
                if job.partition in partitions:
                    self._known.difference_update(job.keys)
                    self._jobs.pop(job_id, None)

    def _take(self, job_id: UUID) -> list[LeftJob]:
        job = self._jobs.get(job_id)
        if job is None or job.is_taken or not job.is_whole:
            return []  # taken before, or given up and perhaps about to be ours again
        job.is_taken = True
        return [job]


def _count(jobs: Iterable[LeftJob]) -> int:
    return sum(len(job.keys) for job in jobs)
