"""Fire: what waits to be dispatched, and which of it goes next.

Invariant: every batch that was put comes out once. What comes out had a place: in all, with its
tenant, and with its origin of that tenant; the breakers of that origin and of its job let it
through. Late batches go only when none on time may.

Places count requests, see `FairnessConfig`; an origin is one of a tenant, so that no tenant stands
in another's way to the same host. The late lane fills half of the places at most: runs that come
due find one, however long the requests take that catch up.

An origin that has become idle is looked at a little later, and forgotten if it was so all the time:
one that is busy now and then is not made anew for each request. One whose breaker has seen failures
is kept for the longest wait that there is.

Batches of a job that is held back wait apart from the lines, where they would be in the way of
others, and have a bound of their own: a job that fails cannot use up the room of those that do not.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from wheelsched.config import FairnessConfig
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.core.model import Lane
from wheelsched.ports import Route
from wheelsched.shard.breaker import Breaker, BreakerState, Verdict
from wheelsched.shard.failing import FailingJob, FailingJobs
from wheelsched.shard.pace import Pace
from wheelsched.shard.places import Key, LaneQueue, Origin, Tenant
from wheelsched.shard.turns import Turns


class Batch(Protocol):
    """The runs of one request. Its length is their number; nothing of it changes while it waits."""

    @property
    def route(self) -> Route: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def priority(self) -> int: ...
    @property
    def subject(self) -> Hashable:
        """What a bad answer is held against: the job, or of a target with batches the route."""

    def __len__(self) -> int: ...


class Ended(NamedTuple):
    """The end of a request, as its breakers are told of it."""

    batch: Batch
    subject: Hashable
    at_us: int
    verdict: Verdict | None
    error: str


B = TypeVar("B", bound=Batch)

IDLE_US = 5 * SECOND  # before an origin is forgotten
FAILING = 10_000  # jobs that are known to fail


class FairQueue(Generic[B]):
    """What waits to be dispatched. `weight_of` gives the weight of a tenant, from 1."""

    def __init__(self, config: FairnessConfig, weight_of: Callable[[UUID], int]) -> None:
        self._config = config
        self._pace = pace = Pace(config.pace)
        on_time, late = (Turns[Origin[B], B](config.quantum, weight_of) for _ in range(2))
        self._on_time = LaneQueue(config, on_time, pace.count_on_time, part=1)
        self._late = LaneQueue(config, late, pace.spend, part=2)
        self._lanes = (self._on_time, self._late)
        self._origin_edges = frozenset(lane.per_origin for lane in self._lanes)
        self._tenant_edges = frozenset(lane.per_tenant for lane in self._lanes)
        self._longest_wait_us = config.breaker.open_max_ms * MILLISECOND
        self._tenants: dict[UUID, Tenant[B]] = {}
        self._origins: dict[Key, Origin[B]] = {}
        self._failing: FailingJobs[B] = FailingJobs(config.breaker, FAILING)
        # By identity; with its runs, and what a bad answer is held against.
        self._sent: dict[int, tuple[B, Origin[B], int, Hashable]] = {}
        # A heap: when to look at whom.
        self._looks: list[tuple[int, int, Origin[B] | FailingJob[B]]] = []
        self._order = count()
        self.runs_in_flight = 0
        self.breaker_transitions = Counter[str]()  # by the state that a breaker went to

    def __len__(self) -> int:
        """The runs that wait."""
        return self._on_time.queued + self._late.queued

    def put(self, batch: B) -> bool:
        """Lets a batch wait; False when too much does already for its origin."""
        runs = len(batch)
        assert runs > 0
        route = batch.route
        origin = self._origin_of(route)
        if origin is None:
            origin = self._add_origin(route)
        job = self._failing.get(batch.subject) if self._failing else None
        is_late = batch.lane is Lane.LATE
        is_held = job is not None and (bool(job.held[is_late]) or not job.may_send(origin))
        most = self._config.max_queued
        waiting = origin.held if is_held else origin.queued
        if waiting + runs > most or origin.queued + origin.held + runs > 2 * most:
            if origin.is_idle and origin.look_at_us is None:
                self._forget(origin)
            return False
        self._lanes[is_late].queued += runs
        if job is not None and is_held:
            self._hold(origin, job, batch)
        else:
            self._line_up(origin, batch)
        return True

    def take(self, now_us: int) -> B | None:
        """The batch that goes now, from here on in flight; None when none may."""
        if self._looks and self._looks[0][0] <= now_us:
            self._look_around(now_us)
        batch = self._take_from(self._on_time, now_us)
        if batch is None and self._pace.ready_us <= now_us:
            batch = self._take_from(self._late, now_us)
        return batch

    def done(self, batch: B, now_us: int, verdict: Verdict | None, error: str = "") -> None:
        """Frees the place of a batch in flight, and tells its breakers; None: it was never sent."""
        _, origin, runs, subject = self._sent.pop(id(batch))
        ended = Ended(batch, subject, now_us, verdict, error)
        self.runs_in_flight -= runs
        tenant = origin.tenant
        was_edge_of_origin = origin.in_flight in self._origin_edges
        was_edge_of_tenant = tenant.in_flight in self._tenant_edges
        origin.in_flight -= 1
        tenant.in_flight -= 1
        if origin.breaker is not None or (verdict is not None and verdict.has_origin_failed):
            self._tell_origin(origin, ended)
        elif was_edge_of_origin:
            self._open_lines(origin)
        if self._failing or (verdict is not None and verdict.has_job_failed):
            self._tell_job(ended)
        if was_edge_of_tenant:
            self._open_shares(tenant)
        if not origin.in_flight and origin.is_idle:
            origin.idle_since_us = now_us
            if origin.look_at_us is None:
                self._look_later(origin, now_us + IDLE_US)

    def wake_at_us(self) -> int | None:
        """When to `take` again, though nothing is put or done until then."""
        looks_us = self._looks[0][0] if self._looks else None
        if not self._late.turns or len(self._sent) >= self._late.in_all:
            return looks_us
        ready_us = self._pace.ready_us
        return ready_us if looks_us is None else min(ready_us, looks_us)

    @property
    def in_flight(self) -> int:
        """The requests in flight."""
        return len(self._sent)

    def queued(self, lane: Lane) -> int:
        """The runs that wait in a lane."""
        return self._lanes[lane is Lane.LATE].queued

    def breakers(self) -> dict[tuple[UUID, str], Breaker]:
        """The breakers of origins that have seen failures, by tenant and origin."""
        return {
            (origin.tenant.tenant_id, origin.key[1]): origin.breaker
            for origin in self._origins.values()
            if origin.breaker is not None
        }

    def failing_jobs(self) -> list[FailingJob[B]]:
        """The jobs whose breakers are not closed."""
        return [job for job in self._failing if job.breaker.state is not BreakerState.CLOSED]

    def _take_from(self, lane: LaneQueue[B], now_us: int) -> B | None:
        if len(self._sent) >= lane.in_all:
            return None
        while (taken := lane.turns.take()) is not None:
            origin, batch, runs = taken
            origin.queued -= runs
            job = self._failing.get(batch.subject) if self._failing else None
            if job is None or job.may_send(origin):
                lane.queued -= runs
                lane.went(runs, now_us)
                self._send(origin, batch, runs, now_us)
                return batch
            origin.lines[batch.lane is Lane.LATE].share.credit += runs
            self._hold(origin, job, batch)
        return None

    def _send(self, origin: Origin[B], batch: B, runs: int, now_us: int) -> None:
        tenant, subject = origin.tenant, batch.subject
        origin.in_flight += 1
        tenant.in_flight += 1
        self.runs_in_flight += runs
        self._sent[id(batch)] = (batch, origin, runs, subject)
        if self._failing and (job := self._failing.get(subject)) is not None:
            self._send_of_job(job, batch, now_us)
        if origin.breaker is not None:
            self._send_to_failing(origin, batch, now_us)
        elif origin.in_flight in self._origin_edges:
            self._open_lines(origin)
        if tenant.in_flight in self._tenant_edges:
            self._open_shares(tenant)

    def _send_of_job(self, job: FailingJob[B], batch: B, now_us: int) -> None:
        breaker, before = job.breaker, job.breaker.state
        breaker.sent(batch, now_us)
        if breaker.state is not before:
            self.breaker_transitions[breaker.state] += 1
            self._look_later(job, breaker.open_until_us)

    def _send_to_failing(self, origin: Origin[B], batch: B, now_us: int) -> None:
        """Sends to an origin with a breaker. The next probe is to be of another job."""
        assert origin.breaker is not None
        breaker, before = origin.breaker, origin.breaker.state
        breaker.sent(batch, now_us)
        if breaker.state is not before:
            self.breaker_transitions[breaker.state] += 1
            self._look_later(origin, breaker.open_until_us)
            job = self._add_failing(batch.subject, batch.route)
            job.probed = origin
            origin.probed[job.subject] = None
            origin.probed.move_to_end(job.subject)
        self._open_lines(origin)

    def _open_lines(self, origin: Origin[B]) -> None:
        may_send = origin.breaker is None or origin.breaker.may_send
        for lane, line in zip(self._lanes, origin.lines, strict=True):
            is_open = may_send and origin.in_flight < lane.per_origin
            if line.is_open is not is_open:
                lane.turns.open_line(line, is_open=is_open)

    def _open_shares(self, tenant: Tenant[B]) -> None:
        for lane, share in zip(self._lanes, tenant.shares, strict=True):
            is_open = tenant.in_flight < lane.per_tenant
            if share.is_open is not is_open:
                lane.turns.open_share(share, is_open=is_open)

    def _origin_of(self, route: Route) -> Origin[B] | None:
        return self._origins.get((route.tenant_id.int, route.origin))

    def _line_up(self, origin: Origin[B], batch: B) -> None:
        is_late = batch.lane is Lane.LATE
        origin.queued += len(batch)
        self._lanes[is_late].turns.push(origin.lines[is_late], batch, batch.priority)

    def _hold(self, origin: Origin[B], job: FailingJob[B], batch: B) -> None:
        origin.held += len(batch)
        job.held[batch.lane is Lane.LATE].append(batch)
        self._offer_probe(origin)

    def _release(self, job: FailingJob[B]) -> None:
        """Lines up what the breaker of a job lets go: all of it, or a probe of each lane."""
        is_closed = job.breaker.state is BreakerState.CLOSED
        for held in job.held:
            while held and job.breaker.may_send:
                origin = self._origin_of(held[0].route)
                assert origin is not None  # it is not idle
                if job.probed is origin:
                    break
                self._line_up_held(origin, held)
                if not is_closed:
                    break
        if job.is_over:
            self._failing.discard(job)
        elif job.probed is not None:
            self._offer_probe(job.probed)

    def _line_up_held(self, origin: Origin[B], held: deque[B]) -> None:
        batch = held.popleft()
        origin.held -= len(batch)
        self._line_up(origin, batch)

    def _offer_probe(self, origin: Origin[B]) -> None:
        """If only jobs that were probes already have runs for an origin, lets one of them probe."""
        breaker = origin.breaker
        if breaker is None or breaker.state is not BreakerState.HALF_OPEN:
            return
        for is_late, line in enumerate(origin.lines):
            if not line.priorities:
                self._offer_from(origin, is_late)

    def _offer_from(self, origin: Origin[B], is_late: int) -> None:
        """Lines up a run of the job whose turn was longest ago."""
        for _ in range(len(origin.probed)):
            subject, _ = origin.probed.popitem(last=False)
            job = self._failing.get(subject)
            if job is None:
                continue
            if job.probed is origin and not (job.has_held or origin.queued):
                job.probed = None  # nothing of it waits for the origin
                self._release(job)
                continue
            origin.probed[subject] = None
            held = job.held[is_late]
            if held and job.breaker.may_send and self._origin_of(held[0].route) is origin:
                job.probed = None
                self._line_up_held(origin, held)
                return

    def _tell_origin(self, origin: Origin[B], ended: Ended) -> None:
        if origin.breaker is None:
            origin.breaker = Breaker(self._config.breaker)
        breaker, before = origin.breaker, origin.breaker.state
        verdict = ended.verdict
        breaker.ended(
            ended.batch,
            ended.at_us,
            failed=None if verdict is None else verdict.has_origin_failed,
            error=ended.error,
            # A handler that hangs is one job's failure, however often; many are the origin's.
            once=ended.subject if verdict is Verdict.SILENT else None,
        )
        if breaker.state is not before:
            self.breaker_transitions[breaker.state] += 1
        if breaker.state is BreakerState.OPEN:
            self._look_later(origin, breaker.open_until_us)
        elif breaker.state is BreakerState.CLOSED:
            self._end_probes(origin)
        if breaker.is_fresh:
            origin.breaker = None
        self._open_lines(origin)
        self._offer_probe(origin)

    def _end_probes(self, origin: Origin[B]) -> None:
        """The origin answers, or is forgotten: its jobs need not take turns any more."""
        while origin.probed:
            job = self._failing.get(origin.probed.popitem()[0])
            if job is not None:
                if job.probed is origin:
                    job.probed = None
                self._release(job)

    def _tell_job(self, ended: Ended) -> None:
        batch, subject = ended.batch, ended.subject
        failed = None if ended.verdict is None else ended.verdict.has_job_failed
        job = self._add_failing(subject, batch.route) if failed else self._failing.get(subject)
        if job is None:
            return
        breaker, before = job.breaker, job.breaker.state
        breaker.ended(batch, ended.at_us, failed=failed, error=ended.error)
        if breaker.state is not before:
            self.breaker_transitions[breaker.state] += 1
        if breaker.state is BreakerState.OPEN:
            self._look_later(job, breaker.open_until_us)
        self._release(job)

    def _add_failing(self, subject: Hashable, route: Route) -> FailingJob[B]:
        job = self._failing.add(subject, route)
        if (old := self._failing.pop_surplus()) is not None:
            old.probed = old.look_at_us = None
            old.breaker = Breaker(self._config.breaker)
            self._release(old)
        return job

    def _look_around(self, now_us: int) -> None:
        while self._looks and self._looks[0][0] <= now_us:
            at_us, _, seen = heappop(self._looks)
            if seen.look_at_us == at_us:
                seen.look_at_us = None
                if isinstance(seen, Origin):
                    self._look_at(seen, now_us)
                else:
                    self._look_at_job(seen, now_us)

    def _look_at(self, origin: Origin[B], now_us: int) -> None:
        breaker = origin.breaker
        if breaker is not None and breaker.state is BreakerState.OPEN:
            breaker.half_open(now_us)
            self.breaker_transitions[breaker.state] += 1
            self._open_lines(origin)
            self._look_later(origin, now_us + self._longest_wait_us)
            self._offer_probe(origin)
        elif origin.is_idle:
            kept_us = IDLE_US if breaker is None else self._longest_wait_us
            if now_us < origin.idle_since_us + kept_us:
                self._look_later(origin, origin.idle_since_us + kept_us)
            else:
                self._forget(origin)

    def _look_at_job(self, job: FailingJob[B], now_us: int) -> None:
        """Lets the breaker of a job half open; forgets one that nothing came for since, and that
        nothing in the line of its origin can be for."""
        breaker = job.breaker
        if breaker.state is BreakerState.OPEN:
            breaker.half_open(now_us)
            self.breaker_transitions[breaker.state] += 1
            self._look_later(job, now_us + self._longest_wait_us)
            self._release(job)
        elif not job.has_held and job.probed is None:
            origin = self._origin_of(job.route)
            if origin is None or not origin.queued:
                self._failing.discard(job)
            else:
                self._look_later(job, now_us + self._longest_wait_us)

    def _look_later(self, seen: Origin[B] | FailingJob[B], at_us: int) -> None:
        if seen.look_at_us != at_us:
            seen.look_at_us = at_us
            heappush(self._looks, (at_us, next(self._order), seen))

    def _add_origin(self, route: Route) -> Origin[B]:
        tenant = self._tenants.get(route.tenant_id)
        if tenant is None:
            tenant = self._tenants[route.tenant_id] = Tenant(route.tenant_id)
        tenant.origins += 1
        key = (route.tenant_id.int, route.origin)
        origin = self._origins[key] = Origin(key, tenant)
        return origin

    def _forget(self, origin: Origin[B]) -> None:
        self._end_probes(origin)
        del self._origins[origin.key]
        origin.tenant.origins -= 1
        if not origin.tenant.origins:
            del self._tenants[origin.tenant.tenant_id]
