"""Compares the fair queue with a model that scans a plain list."""

import os
from collections import Counter
from collections.abc import Collection, Hashable
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.fairness.batches import Parcel, route, tenant

from wheelsched.config import BacklogRateConfig, BreakerConfig, FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.breaker import Breaker, BreakerState, Verdict
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.values.duration import SECOND

BREAKER = BreakerConfig(failures=2, open_initial_ms=1_000, open_max_ms=3_000)
CONFIGS = st.builds(
    FairnessConfig,
    in_flight=st.integers(1, 12),
    in_flight_per_tenant=st.integers(1, 8),
    in_flight_per_origin=st.integers(1, 5),
    quantum=st.integers(1, 5),
    max_queued=st.sampled_from([20, 1_000]),
    breaker=st.just(BREAKER),
    backlog_rate=st.builds(BacklogRateConfig, factor=st.just(2), floor=st.sampled_from([2, 1_000])),
)
ROUTES = [route(tenant(number), f"{host}.example") for number in (1, 2, 3) for host in "ab"]
PARCELS = st.builds(
    Parcel,
    st.sampled_from(ROUTES),
    st.integers(1, 12),
    lane=st.sampled_from(Lane),
    priority=st.integers(-1, 1),
    subject=st.sampled_from(["a", "b", "c"]),
)
Key = tuple[UUID, str]
K = TypeVar("K", bound=Hashable)


def key_of(batch: Parcel) -> Key:
    return batch.route.tenant_id, batch.route.origin


class FairQueueMachine(RuleBasedStateMachine):
    """Puts, takes and ends batches, with or without failures, while time passes."""

    @initialize(config=CONFIGS)
    def begin(self, config: FairnessConfig) -> None:
        self.config = config
        self.queue: FairQueue[Parcel] = FairQueue(config, lambda tenant_id: tenant_id.int)
        self.now_us = 1_000 * SECOND
        self.waiting: list[Parcel] = []  # in the order in which they were put
        self.in_flight: list[Parcel] = []
        self.breakers: dict[Key, Breaker] = {}
        self.jobs: dict[str, Breaker] = {}
        self.has_failed = False

    @rule(batches=st.lists(PARCELS, min_size=1, max_size=8))
    def put(self, batches: list[Parcel]) -> None:
        for batch in batches:
            key = key_of(batch)
            queued = sum(len(other) for other in self.waiting if key_of(other) == key)
            is_taken = self.queue.put(batch)
            # What is held back has a bound of its own, beside that of what may go.
            if queued + len(batch) <= self.config.max_queued:
                assert is_taken
            elif queued + len(batch) > 2 * self.config.max_queued:
                assert not is_taken
            if is_taken:
                self.waiting.append(batch)

    @rule(times=st.integers(1, 10))
    def take(self, times: int) -> None:
        for _ in range(times):
            self.take_one()

    def take_one(self) -> bool:
        self.let_breakers_half_open()
        ready = self.queue._backlog_rate.ready_us <= self.now_us
        on_time = self.may_go(Lane.ON_TIME)
        late = self.may_go(Lane.LATE) if ready else []
        batch = self.queue.take(self.now_us)
        if batch is None:
            assert not on_time
            assert not late
            wake_at_us = self.queue.wake_at_us()
            assert wake_at_us is None or wake_at_us > self.now_us
            return False
        allowed = on_time or late
        assert any(batch is other for other in allowed)
        if not self.has_failed:  # what was held back has lost its place
            self.check_order(batch, allowed)
        self.waiting.remove(batch)
        self.in_flight.append(batch)
        for breaker in self.breakers_of(batch):
            breaker.sent(batch, self.now_us)
        return True

    def check_order(self, batch: Parcel, allowed: list[Parcel]) -> None:
        rivals = [other for other in allowed if other.route.tenant_id == batch.route.tenant_id]
        assert batch.priority == max(other.priority for other in rivals)
        alike = (other for other in rivals if key_of(other) == key_of(batch))
        assert batch is next(other for other in alike if other.priority == batch.priority)

    def breakers_of(self, batch: Parcel) -> list[Breaker]:
        found = (self.breakers.get(key_of(batch)), self.jobs.get(batch.subject))
        return [breaker for breaker in found if breaker is not None]

    def may_go(self, lane: Lane) -> list[Parcel]:
        part = 2 if lane is Lane.LATE else 1
        in_all, per_tenant, per_origin = (
            (places + part - 1) // part
            for places in (
                self.config.in_flight,
                self.config.in_flight_per_tenant,
                self.config.in_flight_per_origin,
            )
        )
        by_tenant = Counter(batch.route.tenant_id for batch in self.in_flight)
        by_origin = Counter(key_of(batch) for batch in self.in_flight)
        return [
            batch
            for batch in self.waiting
            if batch.lane is lane
            and len(self.in_flight) < in_all
            and by_tenant[batch.route.tenant_id] < per_tenant
            and by_origin[key_of(batch)] < per_origin
            and all(breaker.may_send for breaker in self.breakers_of(batch))
        ]

    def let_breakers_half_open(self) -> None:
        for breaker in (*self.breakers.values(), *self.jobs.values()):
            if breaker.state is BreakerState.OPEN and breaker.open_until_us <= self.now_us:
                breaker.half_open(self.now_us)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), verdict=st.sampled_from([*Verdict, None]))
    def done(self, data: st.DataObject, verdict: Verdict | None) -> None:
        index = data.draw(st.integers(0, len(self.in_flight) - 1))
        self.end(self.in_flight[index], verdict)

    def end(self, batch: Parcel, verdict: Verdict | None) -> None:
        self.in_flight.remove(batch)
        self.has_failed |= verdict in (Verdict.FAILED, Verdict.SILENT, Verdict.UNREACHED)
        self.queue.done(batch, self.now_us, verdict)
        breaker = self.breakers.setdefault(key_of(batch), Breaker(BREAKER))
        breaker.ended(
            batch,
            self.now_us,
            failed=None if verdict is None else verdict.has_origin_failed,
            once=batch.subject if verdict is Verdict.SILENT else None,
        )
        if breaker.is_fresh:
            del self.breakers[key_of(batch)]
        job = self.jobs.setdefault(batch.subject, Breaker(BREAKER))
        job.ended(batch, self.now_us, failed=None if verdict is None else verdict.has_job_failed)
        if job.is_fresh:
            del self.jobs[batch.subject]

    @rule(delay_us=st.sampled_from([1, SECOND // 10, SECOND, 5 * SECOND]))
    def wait(self, delay_us: int) -> None:
        self.now_us += delay_us

    @rule()
    def sleep(self) -> None:
        self.now_us = max(self.now_us, self.queue.wake_at_us() or 0)

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        for lane in Lane:
            runs = sum(len(batch) for batch in self.waiting if batch.lane is lane)
            assert self.queue.queued(lane) == runs
        assert len(self.queue) == sum(map(len, self.waiting))
        assert self.queue.in_flight == len(self.in_flight)
        assert self.queue.runs_in_flight == sum(map(len, self.in_flight))
        by_tenant = Counter(batch.route.tenant_id for batch in self.in_flight)
        tenants = self.queue._limits.tenants.values()
        assert {one.tenant_id: one.in_flight for one in tenants if one.in_flight} == by_tenant

    @invariant()
    def breakers_agree(self) -> None:
        """An origin that was removed was idle, and past its wait."""
        if not hasattr(self, "queue"):
            return
        origins = self.queue.breakers()
        assert origins.keys() <= self.breakers.keys()
        jobs = {str(job.subject): job.breaker for job in self.queue._failing}
        assert {key for key, job in jobs.items() if not job.is_fresh} <= self.jobs.keys()
        busy = {key_of(batch) for batch in self.waiting + self.in_flight}
        self.compare(self.breakers, origins, busy)
        self.compare(self.jobs, jobs, {batch.subject for batch in self.waiting})

    def compare(self, own: dict[K, Breaker], known: dict[K, Breaker], busy: Collection[K]) -> None:
        for key, breaker in list(own.items()):
            if key in known:
                assert known[key].state is breaker.state
                assert known[key].open_until_us == breaker.open_until_us
            else:
                assert key not in busy
                assert breaker.may_send or breaker.open_until_us <= self.now_us
                del own[key]

    def teardown(self) -> None:
        """Whatever happened before, every batch goes in the end, and no state is left."""
        if not hasattr(self, "queue"):
            return
        for batch in list(self.in_flight):
            self.end(batch, None)
        while self.waiting:
            if self.take_one():
                self.end(self.in_flight[0], Verdict.ANSWERED)
            else:
                wake_at_us = self.queue.wake_at_us()
                assert wake_at_us is not None
                self.now_us = wake_at_us
        while (wake_at_us := self.queue.wake_at_us()) is not None:
            self.now_us = max(self.now_us, wake_at_us)
            assert self.queue.take(self.now_us) is None
        assert self.queue.take(self.now_us) is None
        assert not self.queue._limits.origins
        assert not self.queue._limits.tenants
        assert not self.queue._sent


LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

TestFairQueue = FairQueueMachine.TestCase
TestFairQueue.settings = settings(max_examples=2_000 if LONG else 150, stateful_step_count=50)


@given(
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    sizes=st.lists(st.integers(1, 30), min_size=5, max_size=5),
    quantum=st.integers(1, 20),
    places=st.integers(1, 10),
    takes=st.integers(1, 300),
)
def test_busy_tenants_are_served_by_weight(
    weights: list[int], sizes: list[int], quantum: int, places: int, takes: int
) -> None:
    """At every moment, whatever the sizes of their batches and however few slots there are."""
    queue: FairQueue[Parcel] = FairQueue(
        FairnessConfig(in_flight=places, quantum=quantum),
        lambda tenant_id: weights[tenant_id.int],
    )
    served = [0] * len(weights)
    routes = [route(tenant(number)) for number in range(len(weights))]
    for each, size in zip(routes, sizes, strict=False):
        for _ in range(takes + 1):
            assert queue.put(Parcel(each, size))
    in_flight = []
    for now_us in range(takes):
        batch = queue.take(now_us)
        assert batch is not None
        served[batch.route.tenant_id.int] += len(batch)
        shares = [runs / weight for runs, weight in zip(served, weights, strict=True)]
        assert max(shares) - min(shares) <= 2 * quantum + max(sizes)
        in_flight.append(batch)
        if len(in_flight) == places:
            queue.done(in_flight.pop(0), now_us, Verdict.ANSWERED)


@pytest.mark.parametrize("lane", Lane)
@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=20), rivals=st.integers(1, 5))
def test_no_tenant_starves(lane: Lane, sizes: list[int], rivals: int) -> None:
    """A tenant with big batches is served next to tenants with single runs."""
    queue: FairQueue[Parcel] = FairQueue(FairnessConfig(in_flight=1), lambda _: 1)
    big = {Parcel(route(tenant(0)), size, lane=lane) for size in sizes}
    assert all(queue.put(batch) for batch in big)
    for number in range(1, rivals + 1):
        for _ in range(2):
            assert queue.put(Parcel(route(tenant(number)), lane=lane))
    now_us = others = 0
    while big:
        batch = queue.take(now_us)
        if batch is None:
            now_us = queue.wake_at_us() or 0
            continue
        if batch in big:
            big.remove(batch)
        else:
            others += 1
            assert queue.put(Parcel(batch.route, lane=lane))
        queue.done(batch, now_us, Verdict.ANSWERED)
    assert others <= rivals * (sum(sizes) + 2 * FairnessConfig().quantum)
