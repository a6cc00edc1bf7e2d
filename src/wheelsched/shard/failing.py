"""Fire: the jobs that are held back while others of their origin go on.

A job is here while its answers fail, or while a run of it has been the latest probe of its origin:
the next probe is another job's.

Invariant: there are at most `most` of them. The one that failed longest ago makes room for another,
and is let go as if nothing had been counted.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic

from wheelsched.config import BreakerConfig
from wheelsched.ports import Route
from wheelsched.shard.breaker import Breaker
from wheelsched.shard.places import Origin
from wheelsched.shard.turns import Item


class FailingJob(Generic[Item]):
    """A job, or a target whose runs go out in batches, and its batches that are held back."""

    __slots__ = ("breaker", "held", "look_at_us", "probed", "route", "subject")

    def __init__(self, subject: Hashable, route: Route, config: BreakerConfig) -> None:
        self.subject = subject
        self.route = route
        self.breaker = Breaker(config)
        # By lane, as the lines of an origin: what is late may have to wait where others need not.
        self.held: tuple[deque[Item], deque[Item]] = (deque(), deque())
        self.probed: Origin[Item] | None = None  # the origin that has to try another job first
        self.look_at_us: int | None = None

    def may_send(self, origin: Origin[Item]) -> bool:
        return self.breaker.may_send and self.probed is not origin

    @property
    def has_held(self) -> bool:
        return bool(self.held[0] or self.held[1])

    @property
    def is_over(self) -> bool:
        return self.breaker.is_fresh and self.probed is None and not self.has_held


class FailingJobs(Generic[Item]):
    """All of them, those that failed last at the end."""

    def __init__(self, config: BreakerConfig, most: int) -> None:
        self._config = config
        self._most = most
        self._jobs: OrderedDict[Hashable, FailingJob[Item]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[FailingJob[Item]]:
        return iter(self._jobs.values())

    def get(self, subject: Hashable) -> FailingJob[Item] | None:
        return self._jobs.get(subject)

    def add(self, subject: Hashable, route: Route) -> FailingJob[Item]:
        """The job, which is here from now on."""
        job = self._jobs.get(subject)
        if job is None:
            job = self._jobs[subject] = FailingJob(subject, route, self._config)
        self._jobs.move_to_end(subject)
        return job

    def pop_surplus(self) -> FailingJob[Item] | None:
        """Forgets the job that failed longest ago, if there are too many."""
        return self._jobs.popitem(last=False)[1] if len(self._jobs) > self._most else None

    def discard(self, job: FailingJob[Item]) -> None:
        if self._jobs.get(job.subject) is job:
            del self._jobs[job.subject]
