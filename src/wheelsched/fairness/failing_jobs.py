"""The jobs that are held back while other jobs of their origin go on.

A job is here while its responses fail, or while it sent the latest probe of its origin: the next
probe is another job's.

Invariant: at most `most` jobs are held back. One more replaces the job that failed longest ago,
whose failures are forgotten and whose batches are released.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic

from wheelsched.config import BreakerConfig
from wheelsched.fairness.breaker import Breaker
from wheelsched.fairness.limits import Origin
from wheelsched.fairness.round_robin import Item
from wheelsched.ports import Route


class FailingJob(Generic[Item]):
    """A failing job, or a failing target that takes batches, with the batches held back."""

    __slots__ = ("breaker", "check_at_us", "held", "probed", "route", "subject")

    def __init__(self, subject: Hashable, route: Route, config: BreakerConfig) -> None:
        self.subject = subject
        self.route = route
        self.breaker = Breaker(config)
        # By lane, like the queues of an origin: late batches may have to wait when others need not.
        self.held: tuple[deque[Item], deque[Item]] = (deque(), deque())
        self.probed: Origin[Item] | None = None  # the origin that tries another job first
        self.check_at_us: int | None = None

    def may_send(self, origin: Origin[Item]) -> bool:
        return self.breaker.may_send and self.probed is not origin

    @property
    def has_held(self) -> bool:
        return bool(self.held[0] or self.held[1])

    @property
    def is_over(self) -> bool:
        return self.breaker.is_fresh and self.probed is None and not self.has_held


class FailingJobs(Generic[Item]):
    """The failing jobs, the latest failure last."""

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
        """Adds a job, or moves it to the end."""
        job = self._jobs.get(subject)
        if job is None:
            job = self._jobs[subject] = FailingJob(subject, route, self._config)
        self._jobs.move_to_end(subject)
        return job

    def pop_surplus(self) -> FailingJob[Item] | None:
        """Removes the job that failed longest ago, if there are too many."""
        return self._jobs.popitem(last=False)[1] if len(self._jobs) > self._most else None

    def discard(self, job: FailingJob[Item]) -> None:
        if self._jobs.get(job.subject) is job:
            del self._jobs[job.subject]
