"""Holds back the batches of failing jobs, and chooses which job probes a failing origin next.

Invariant: a job that is held back keeps its batches apart from the queues, where they would block
other jobs. One breaker opens per job for failed responses; one per origin for missing ones. While
the breaker of an origin is half open, every job with runs for it gets a turn as the probe before
any job gets a second one.
"""

from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, NamedTuple

from wheelsched.config import FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.batch import B, Batch
from wheelsched.fairness.breaker import Breaker, BreakerState, Verdict
from wheelsched.fairness.checks import Checks
from wheelsched.fairness.failing_jobs import FailingJob, FailingJobs
from wheelsched.fairness.limits import Limits, Origin
from wheelsched.ports import Route
from wheelsched.values.duration import MILLISECOND


class Ended(NamedTuple):
    """The end of a request, as its breakers count it."""

    batch: Batch
    subject: Hashable
    at_us: int
    verdict: Verdict | None
    error: str


class Probes(Generic[B]):
    """The failing jobs of a fair queue, and what is held back for them."""

    def __init__(
        self,
        config: FairnessConfig,
        failing: FailingJobs[B],
        limits: Limits[B],
        checks: Checks[B],
    ) -> None:
        self._config = config
        self._failing = failing
        self._limits = limits
        self._checks = checks
        self._longest_wait_us = config.breaker.open_max_ms * MILLISECOND
        self.transitions = Counter[str]()  # of all breakers, by the state entered

    def hold(self, origin: Origin[B], job: FailingJob[B], batch: B) -> None:
        """Keeps a batch apart until its job may send."""
        origin.held += len(batch)
        job.held[batch.lane is Lane.LATE].append(batch)
        self.offer(origin)

    def sent_by_job(self, job: FailingJob[B], batch: B, now_us: int) -> None:
        """Counts a request of a failing job."""
        breaker, before = job.breaker, job.breaker.state
        breaker.sent(batch, now_us)
        if breaker.state is not before:
            self.transitions[breaker.state] += 1
            self._checks.schedule(job, breaker.open_until_us)

    def sent_to_origin(self, origin: Origin[B], batch: B, now_us: int) -> None:
        """Counts a request to an origin with a breaker. Another job sends the next probe."""
        assert origin.breaker is not None
        breaker, before = origin.breaker, origin.breaker.state
        breaker.sent(batch, now_us)
        if breaker.state is not before:
            self.transitions[breaker.state] += 1
            self._checks.schedule(origin, breaker.open_until_us)
            job = self._add(batch.subject, batch.route)
            job.probed = origin
            origin.probed[job.subject] = None
            origin.probed.move_to_end(job.subject)
        self._limits.update_origin(origin)

    def count_for_origin(self, origin: Origin[B], ended: Ended) -> None:
        """Updates the breaker of an origin after a request."""
        if origin.breaker is None:
            origin.breaker = Breaker(self._config.breaker)
        breaker, before = origin.breaker, origin.breaker.state
        verdict = ended.verdict
        breaker.ended(
            ended.batch,
            ended.at_us,
            failed=None if verdict is None else verdict.has_origin_failed,
            error=ended.error,
            # One handler that hangs, however often, is one job's failure; many are the origin's.
            once=ended.subject if verdict is Verdict.SILENT else None,
        )
        if breaker.state is not before:
            self.transitions[breaker.state] += 1
        if breaker.state is BreakerState.OPEN:
            self._checks.schedule(origin, breaker.open_until_us)
        elif breaker.state is BreakerState.CLOSED:
            self.end(origin)
        if breaker.is_fresh:
            origin.breaker = None
        self._limits.update_origin(origin)
        self.offer(origin)

    def count_for_job(self, ended: Ended) -> None:
        """Updates the breaker of a job after a request."""
        batch, subject = ended.batch, ended.subject
        failed = None if ended.verdict is None else ended.verdict.has_job_failed
        job = self._add(subject, batch.route) if failed else self._failing.get(subject)
        if job is None:
            return
        breaker, before = job.breaker, job.breaker.state
        breaker.ended(batch, ended.at_us, failed=failed, error=ended.error)
        if breaker.state is not before:
            self.transitions[breaker.state] += 1
        if breaker.state is BreakerState.OPEN:
            self._checks.schedule(job, breaker.open_until_us)
        self._release(job)

    def check_job(self, job: FailingJob[B], now_us: int) -> None:
        """Half-opens the breaker of a job; or drops a job that has had no requests since, if its
        origin has nothing queued that could be the job's."""
        breaker = job.breaker
        if breaker.state is BreakerState.OPEN:
            breaker.half_open(now_us)
            self.transitions[breaker.state] += 1
            self._checks.schedule(job, now_us + self._longest_wait_us)
            self._release(job)
        elif not job.has_held and job.probed is None:
            origin = self._limits.find(job.route)
            if origin is None or not origin.queued:
                self._failing.discard(job)
            else:
                self._checks.schedule(job, now_us + self._longest_wait_us)

    def half_open(self, origin: Origin[B], now_us: int) -> None:
        """Half-opens the breaker of an origin, and offers it a probe."""
        assert origin.breaker is not None
        origin.breaker.half_open(now_us)
        self.transitions[origin.breaker.state] += 1
        self._limits.update_origin(origin)
        self._checks.schedule(origin, now_us + self._longest_wait_us)
        self.offer(origin)

    def offer(self, origin: Origin[B]) -> None:
        """Lets a job probe an origin again if no other job has runs for it."""
        breaker = origin.breaker
        if breaker is None or breaker.state is not BreakerState.HALF_OPEN:
            return
        for is_late, queue in enumerate(origin.queues):
            if not queue.priorities:
                self._offer_from(origin, is_late)

    def end(self, origin: Origin[B]) -> None:
        """Lets the jobs of an origin go on without taking turns: it responds, or is removed."""
        while origin.probed:
            job = self._failing.get(origin.probed.popitem()[0])
            if job is not None:
                if job.probed is origin:
                    job.probed = None
                self._release(job)

    def _release(self, job: FailingJob[B]) -> None:
        """Queues what the breaker of a job lets through: everything, or one probe per lane."""
        is_closed = job.breaker.state is BreakerState.CLOSED
        for held in job.held:
            while held and job.breaker.may_send:
                origin = self._limits.find(held[0].route)
                assert origin is not None  # it is not idle
                if job.probed is origin:
                    break
                self._enqueue_held(origin, held)
                if not is_closed:
                    break
        if job.is_over:
            self._failing.discard(job)
        elif job.probed is not None:
            self.offer(job.probed)

    def _enqueue_held(self, origin: Origin[B], held: deque[B]) -> None:
        batch = held.popleft()
        origin.held -= len(batch)
        self._limits.enqueue(origin, batch)

    def _offer_from(self, origin: Origin[B], is_late: int) -> None:
        """Queues a batch of the job that probed the origin longest ago."""
        for _ in range(len(origin.probed)):
            subject, _ = origin.probed.popitem(last=False)
            job = self._failing.get(subject)
            if job is None:
                continue
            if job.probed is origin and not (job.has_held or origin.queued):
                job.probed = None  # it has nothing for the origin
                self._release(job)
                continue
            origin.probed[subject] = None
            held = job.held[is_late]
            if held and job.breaker.may_send and self._limits.find(held[0].route) is origin:
                job.probed = None
                self._enqueue_held(origin, held)
                return

    def _add(self, subject: Hashable, route: Route) -> FailingJob[B]:
        job = self._failing.add(subject, route)
        if (old := self._failing.pop_surplus()) is not None:
            old.probed = old.check_at_us = None
            old.breaker = Breaker(self._config.breaker)
            self._release(old)
        return job
