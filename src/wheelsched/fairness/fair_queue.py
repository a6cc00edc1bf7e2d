"""The requests that wait to be sent, and which one goes next.

Invariant: every batch that is put is taken exactly once. A batch is taken only below three limits,
in total, of its tenant and of its origin, and only if the breakers of its origin and its job let it
through. Late batches go only when no batch on time may.

Limits count requests: see `FairnessConfig`. An origin belongs to one tenant, so tenants that call
the same host do not block each other.

An origin is removed some seconds after it became idle, so that one with sparse traffic is not built
anew for each request. An origin with a breaker stays for the longest wait between two probes.

Batches of a job that is held back count against a limit of their own: a failing job cannot use up
the space of the healthy ones. See `probes`.

A route with a room sends only as many runs as the room has credits: a larger batch is split, and
the rest of it stays in front. While there are no credits, its origin is closed.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic
from uuid import UUID

from wheelsched.config import FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.backlog_rate import BacklogRate
from wheelsched.fairness.batch import B
from wheelsched.fairness.breaker import Breaker, BreakerState, Verdict
from wheelsched.fairness.checks import Checks
from wheelsched.fairness.failing_jobs import FailingJob, FailingJobs
from wheelsched.fairness.limits import LaneQueue, Limits, Origin
from wheelsched.fairness.probes import Ended, Probes
from wheelsched.fairness.rooms import Rooms, count_waiting
from wheelsched.fairness.round_robin import RoundRobin
from wheelsched.values.duration import MILLISECOND, SECOND

IDLE_US = 5 * SECOND  # before an origin is removed
FAILING = 10_000  # jobs that are known to fail


class FairQueue(Generic[B]):
    """The requests that wait to be sent. `weight_of` returns the weight of a tenant, at least 1."""

    def __init__(self, config: FairnessConfig, weight_of: Callable[[UUID], int]) -> None:
        self._config = config
        self._backlog_rate = backlog_rate = BacklogRate(config.backlog_rate)
        on_time, late = (RoundRobin[Origin[B], B](config.quantum, weight_of) for _ in range(2))
        self._on_time = LaneQueue(config, on_time, backlog_rate.count_on_time, part=1)
        self._late = LaneQueue(config, late, backlog_rate.spend, part=2)
        self._limits = Limits(self._on_time, self._late)
        self.rooms = Rooms(self._limits, self._note_idle)
        self._failing: FailingJobs[B] = FailingJobs(config.breaker, FAILING)
        self._checks: Checks[B] = Checks()
        self._probes = Probes(config, self._failing, self._limits, self._checks)
        self._longest_wait_us = config.breaker.open_max_ms * MILLISECOND
        # The batches in flight, by identity; with their runs, and what a failure counts against.
        self._sent: dict[int, tuple[B, Origin[B], int, Hashable]] = {}
        self.runs_in_flight = 0

    def __len__(self) -> int:
        """The number of runs queued."""
        return self._on_time.queued + self._late.queued

    def put(self, batch: B) -> bool:
        """Queues a batch; False if too many runs are queued for its origin already."""
        runs = len(batch)
        assert runs > 0
        route = batch.route
        limits = self._limits
        origin = limits.find(route)
        if origin is None:
            origin = limits.add(route)
        job = self._failing.get(batch.subject) if self._failing else None
        is_late = batch.lane is Lane.LATE
        is_held = job is not None and (bool(job.held[is_late]) or not job.may_send(origin))
        most = self._config.max_queued
        waiting = origin.held if is_held else origin.queued
        if waiting + runs > most or origin.queued + origin.held + runs > 2 * most:
            if origin.is_idle and origin.check_at_us is None:
                self._remove(origin)
            return False
        limits.lanes[is_late].queued += runs
        if job is not None and is_held:
            self._probes.hold(origin, job, batch)
        else:
            limits.enqueue(origin, batch)
            if origin.room is not None:
                count_waiting(origin.room, runs, is_late)
        return True

    def put_back(self, batch: B) -> None:
        """Queues a batch before all others of its origin, however many are queued."""
        limits = self._limits
        origin = limits.find(batch.route)
        if origin is None:
            origin = limits.add(batch.route)
        is_late = batch.lane is Lane.LATE
        limits.lanes[is_late].queued += len(batch)
        limits.enqueue(origin, batch, is_front=True)
        if origin.room is not None:
            count_waiting(origin.room, len(batch), is_late)

    def take(self, now_us: int) -> B | None:
        """The next batch, which is in flight from now on; None if none may go."""
        checks = self._checks.heap
        if checks and checks[0][0] <= now_us:
            self._run_checks(now_us)
        batch = self._take_from(self._on_time, now_us)
        if batch is None and self._backlog_rate.ready_us <= now_us:
            batch = self._take_from(self._late, now_us)
        return batch

    def done(self, batch: B, now_us: int, verdict: Verdict | None, error: str = "") -> None:
        """Ends a batch in flight and updates its breakers. The verdict of an unsent one is None."""
        _, origin, runs, subject = self._sent.pop(id(batch))
        ended = Ended(batch, subject, now_us, verdict, error)
        self.runs_in_flight -= runs
        tenant, limits = origin.tenant, self._limits
        was_edge_of_origin = origin.in_flight in limits.origin_edges
        was_edge_of_tenant = tenant.in_flight in limits.tenant_edges
        origin.in_flight -= 1
        tenant.in_flight -= 1
        if origin.breaker is not None or (verdict is not None and verdict.has_origin_failed):
            self._probes.count_for_origin(origin, ended)
        elif was_edge_of_origin:
            limits.update_origin(origin)
        if self._failing or (verdict is not None and verdict.has_job_failed):
            self._probes.count_for_job(ended)
        if was_edge_of_tenant:
            limits.update_tenant(tenant)
        if not origin.in_flight and origin.is_idle:
            self._note_idle(origin, now_us)

    def wake_at_us(self) -> int | None:
        """When to call `take` again if nothing is put or done until then."""
        check_us = self._checks.next_us
        if not self._late.round_robin or len(self._sent) >= self._late.in_all:
            return check_us
        ready_us = self._backlog_rate.ready_us
        return ready_us if check_us is None else min(ready_us, check_us)

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return len(self._sent)

    @property
    def breaker_transitions(self) -> Counter[str]:
        """How often a breaker has entered each state."""
        return self._probes.transitions

    def queued(self, lane: Lane) -> int:
        """The number of runs queued in a lane."""
        return self._limits.lanes[lane is Lane.LATE].queued

    def breakers(self) -> dict[tuple[UUID, str], Breaker]:
        """The breakers of origins that have failed, by tenant and origin."""
        return {
            (origin.tenant.tenant_id, origin.key[1]): origin.breaker
            for origin in self._limits.origins.values()
            if origin.breaker is not None
        }

    def failing_jobs(self) -> list[FailingJob[B]]:
        """The jobs whose breakers are not closed."""
        return [job for job in self._failing if job.breaker.state is not BreakerState.CLOSED]

    def _take_from(self, lane: LaneQueue[B], now_us: int) -> B | None:
        if len(self._sent) >= lane.in_all:
            return None
        while (taken := lane.round_robin.take()) is not None:
            origin, batch, runs = taken
            origin.queued -= runs
            if origin.room is not None:
                if runs < len(batch):
                    batch = batch.split(runs)
                count_waiting(origin.room, -runs, batch.lane is Lane.LATE)
            job = self._failing.get(batch.subject) if self._failing else None
            if job is None or job.may_send(origin):
                lane.queued -= runs
                lane.count_taken(runs, now_us)
                self._send(origin, batch, runs, now_us)
                return batch
            origin.queues[batch.lane is Lane.LATE].tenant_queue.deficit += runs
            self._probes.hold(origin, job, batch)
        return None

    def _send(self, origin: Origin[B], batch: B, runs: int, now_us: int) -> None:
        tenant, subject, limits = origin.tenant, batch.subject, self._limits
        origin.in_flight += 1
        tenant.in_flight += 1
        self.runs_in_flight += runs
        self._sent[id(batch)] = (batch, origin, runs, subject)
        if self._failing and (job := self._failing.get(subject)) is not None:
            self._probes.sent_by_job(job, batch, now_us)
        if origin.breaker is not None:
            self._probes.sent_to_origin(origin, batch, now_us)
        elif origin.in_flight in limits.origin_edges:
            limits.update_origin(origin)
        if tenant.in_flight in limits.tenant_edges:
            limits.update_tenant(tenant)

    def _note_idle(self, origin: Origin[B], now_us: int) -> None:
        """Removes an origin later if it is idle."""
        if origin.is_idle:
            origin.idle_since_us = now_us
            if origin.check_at_us is None:
                self._checks.schedule(origin, now_us + IDLE_US)

    def _run_checks(self, now_us: int) -> None:
        while (entry := self._checks.pop_due(now_us)) is not None:
            if isinstance(entry, Origin):
                self._check_origin(entry, now_us)
            else:
                self._probes.check_job(entry, now_us)

    def _check_origin(self, origin: Origin[B], now_us: int) -> None:
        """Half-opens the breaker of an origin, or removes an origin that has been idle."""
        breaker = origin.breaker
        if breaker is not None and breaker.state is BreakerState.OPEN:
            self._probes.half_open(origin, now_us)
        elif origin.is_idle:
            kept_us = IDLE_US if breaker is None else self._longest_wait_us
            if now_us < origin.idle_since_us + kept_us:
                self._checks.schedule(origin, origin.idle_since_us + kept_us)
            else:
                self._remove(origin)

    def _remove(self, origin: Origin[B]) -> None:
        self._probes.end(origin)
        self._limits.remove(origin)
