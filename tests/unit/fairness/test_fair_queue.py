"""The order in which the fair queue sends, by tenant, target and lane."""

from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

import pytest
from tests.unit.fairness.batches import Parcel, route, tenant

from wheelsched.config import BacklogRateConfig, BreakerConfig, FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.breaker import BreakerState, Verdict
from wheelsched.fairness.fair_queue import IDLE_US, FairQueue
from wheelsched.ports import Route
from wheelsched.values.duration import SECOND

Queue: TypeAlias = FairQueue[Parcel]

CONFIG = FairnessConfig(
    in_flight=20,
    in_flight_per_tenant=10,
    in_flight_per_origin=4,
    max_queued=100_000,
    breaker=BreakerConfig(failures=3, open_initial_ms=1_000, open_max_ms=4_000),
    backlog_rate=BacklogRateConfig(factor=2, floor=10),
)
NOW = 1_000 * SECOND
A, B = tenant(1), tenant(2)


@pytest.fixture
def queue() -> Queue:
    return make_queue()


def make_queue(config: FairnessConfig = CONFIG) -> Queue:
    return FairQueue(config, lambda _: 1)


def put(queue: Queue, batches: Iterable[Parcel]) -> list[Parcel]:
    batches = list(batches)
    assert all(queue.put(batch) for batch in batches)
    return batches


def put_many(queue: Queue, to: Route, count: int, lane: Lane = Lane.ON_TIME) -> list[Parcel]:
    return put(queue, (Parcel(to, lane=lane) for _ in range(count)))


def take_all(queue: Queue, now_us: int = NOW) -> list[Parcel]:
    taken = []
    while (batch := queue.take(now_us)) is not None:
        taken.append(batch)
    return taken


def fail(queue: Queue, to: Route, count: int, now_us: int = NOW) -> None:
    put_many(queue, to, count)
    for batch in take_all(queue, now_us):
        queue.done(batch, now_us, Verdict.UNREACHED)


def states(queue: Queue) -> dict[tuple[UUID, str], BreakerState]:
    return {key: breaker.state for key, breaker in queue.breakers().items()}


def is_blank(queue: Queue) -> bool:
    known = (
        queue._limits.origins,
        queue._limits.tenants,
        queue._sent,
        queue._checks.heap,
        queue._failing,
    )
    return not any(known)


def test_every_batch_is_taken_once(queue: Queue) -> None:
    batch = Parcel(route(A), 3)
    assert queue.put(batch)
    assert len(queue) == 3
    assert queue.take(NOW) is batch
    assert queue.take(NOW) is None
    assert (len(queue), queue.in_flight, queue.runs_in_flight) == (0, 1, 3)
    queue.done(batch, NOW, Verdict.ANSWERED)
    assert (queue.in_flight, queue.runs_in_flight) == (0, 0)
    assert queue.take(NOW + IDLE_US) is None
    assert is_blank(queue)


def test_a_target_with_sparse_traffic_is_not_rebuilt(queue: Queue) -> None:
    """An origin is a reference cycle: collecting it stalls the event loop."""
    known: set[object] = set()
    for now_us in range(NOW, NOW + 3 * IDLE_US, IDLE_US - 1):
        (batch,) = put_many(queue, route(A), 1)
        assert queue.take(now_us) is batch
        queue.done(batch, now_us, Verdict.ANSWERED)
        known.update(queue._limits.origins.values())
    assert len(known) == 1
    assert len(queue._checks.heap) == 1


def test_five_runs_do_not_wait_for_fifty_thousand() -> None:
    queue = make_queue(FairnessConfig())
    put_many(queue, route(A), 50_000)
    few = put_many(queue, route(B), 5)
    first = take_all(queue)
    assert set(few) <= set(first)


def test_five_runs_go_ahead_of_a_tenant_that_uses_every_slot() -> None:
    """They get the first slots that become free, however many targets the big tenant has."""
    queue = make_queue(FairnessConfig(in_flight=50, in_flight_per_tenant=50))
    for host in range(100):
        put_many(queue, route(A, f"{host}.example"), 100)
    under_way = take_all(queue)
    few = put_many(queue, route(B), 5)
    for batch in under_way[:20]:
        queue.done(batch, NOW, Verdict.ANSWERED)
    assert set(few) <= set(take_all(queue))


def test_an_origin_at_its_limit_does_not_block_the_others_of_its_tenant(queue: Queue) -> None:
    put_many(queue, route(A, "hangs.example"), 50)
    assert len(take_all(queue)) == CONFIG.in_flight_per_origin
    well = put_many(queue, route(A, "well.example"), 3)
    assert take_all(queue) == well


def test_tenants_do_not_share_the_limit_of_a_host(queue: Queue) -> None:
    put_many(queue, route(A, "shared.example"), 50)
    take_all(queue)
    others = put_many(queue, route(B, "shared.example"), CONFIG.in_flight_per_origin)
    assert take_all(queue) == others


def test_targets_on_one_host_share_its_limit(queue: Queue) -> None:
    for path in ("/x", "/y", "/z"):
        put_many(queue, route(A, "a.example", path), 3)
    assert len(take_all(queue)) == CONFIG.in_flight_per_origin


def test_a_tenant_at_its_limit_does_not_block_another(queue: Queue) -> None:
    for host in range(10):
        put_many(queue, route(A, f"{host}.example"), 3)
    assert len(take_all(queue)) == CONFIG.in_flight_per_tenant
    others = put_many(queue, route(B), 2)
    assert take_all(queue) == others
    assert queue.in_flight == CONFIG.in_flight_per_tenant + 2


def test_requests_in_flight_are_limited_in_total(queue: Queue) -> None:
    for number in range(1, 30):
        put_many(queue, route(tenant(number)), 1)
    assert len(take_all(queue)) == CONFIG.in_flight


def test_a_slot_that_becomes_free_is_reused(queue: Queue) -> None:
    put_many(queue, route(A), 6)
    first, *_ = take_all(queue)
    queue.done(first, NOW, Verdict.ANSWERED)
    assert len(take_all(queue)) == 1


def test_a_tenants_slot_that_becomes_free_is_reused(queue: Queue) -> None:
    for host in range(10):
        put_many(queue, route(A, f"{host}.example"), 3)
    first, *_ = take_all(queue)
    queue.done(first, NOW, Verdict.ANSWERED)
    assert len(take_all(queue)) == 1


def test_a_batch_uses_one_slot_however_many_runs_it_has(queue: Queue) -> None:
    put(queue, (Parcel(route(A), 500) for _ in range(10)))
    assert len(take_all(queue)) == CONFIG.in_flight_per_origin
    assert queue.runs_in_flight == 500 * CONFIG.in_flight_per_origin


def test_higher_priorities_of_a_tenant_go_first(queue: Queue) -> None:
    low, high, middle = put(queue, (Parcel(route(A), priority=p) for p in (-1, 9, 0)))
    assert take_all(queue) == [high, middle, low]


def test_a_stuck_target_of_high_priority_does_not_block_the_rest(queue: Queue) -> None:
    put(queue, (Parcel(route(A, "hangs.example"), priority=100) for _ in range(50)))
    take_all(queue)
    plain = put_many(queue, route(A, "well.example"), 2)
    assert take_all(queue) == plain


def test_on_time_goes_before_late(queue: Queue) -> None:
    late = Parcel(route(A), lane=Lane.LATE, priority=100)
    on_time = Parcel(route(A), priority=-100)
    put(queue, [late, on_time])
    assert (queue.queued(Lane.ON_TIME), queue.queued(Lane.LATE)) == (1, 1)
    assert take_all(queue) == [on_time, late]


def test_late_work_goes_when_on_time_work_may_not(queue: Queue) -> None:
    put_many(queue, route(A, "hangs.example"), 50)
    take_all(queue)
    late = put_many(queue, route(B), 1, Lane.LATE)
    assert take_all(queue) == late


def test_late_work_leaves_half_of_an_origins_slots_free() -> None:
    queue = make_queue(FairnessConfig(in_flight_per_origin=4))
    put_many(queue, route(A), 50, Lane.LATE)
    assert len(take_all(queue)) == 2
    assert queue.wake_at_us() is None
    on_time = put_many(queue, route(A), 2)
    assert take_all(queue) == on_time


def test_late_work_leaves_half_of_a_tenants_slots_free() -> None:
    queue = make_queue(FairnessConfig(in_flight_per_tenant=6))
    for host in range(10):
        put_many(queue, route(A, f"{host}.example"), 1, Lane.LATE)
    assert len(take_all(queue)) == 3


def test_late_work_leaves_half_of_all_slots_free() -> None:
    queue = make_queue(FairnessConfig(in_flight=6))
    for number in range(10):
        put_many(queue, route(tenant(number)), 1, Lane.LATE)
    assert len(take_all(queue)) == 3
    assert queue.wake_at_us() is None


def test_late_work_may_use_a_single_slot() -> None:
    queue = make_queue(FairnessConfig(in_flight_per_origin=1))
    late = put_many(queue, route(A), 1, Lane.LATE)
    assert take_all(queue) == late


def test_late_work_is_rate_limited(queue: Queue) -> None:
    put_many(queue, route(A), 100, Lane.LATE)
    now_us, taken = NOW, 0
    while now_us < NOW + 5 * SECOND:
        for batch in take_all(queue, now_us):
            queue.done(batch, now_us, Verdict.ANSWERED)
            taken += 1
        wake_at_us = queue.wake_at_us()
        assert wake_at_us is not None
        assert wake_at_us > now_us
        now_us = wake_at_us
    assert taken == pytest.approx(5 * CONFIG.backlog_rate.floor, abs=2)


def test_on_time_work_is_not_rate_limited(queue: Queue) -> None:
    put_many(queue, route(A), 100, Lane.LATE)
    take_all(queue)
    on_time = put_many(queue, route(B), 3)
    assert take_all(queue) == on_time


def test_does_not_wake_while_only_the_end_of_a_request_helps(queue: Queue) -> None:
    put_many(queue, route(A), 50)
    take_all(queue)
    assert queue.wake_at_us() is None


def test_only_a_target_that_does_not_keep_up_is_refused() -> None:
    queue = make_queue(FairnessConfig(max_queued=10))
    assert queue.put(Parcel(route(A), 7))
    assert not queue.put(Parcel(route(A), 4))
    assert queue.put(Parcel(route(A), 3))
    assert not queue.put(Parcel(route(A), lane=Lane.LATE))
    assert queue.put(Parcel(route(A, "other.example"), 10))
    assert queue.put(Parcel(route(B), 10))
    assert len(queue) == 30
    queue.take(NOW)
    assert queue.put(Parcel(route(A), 7))


def test_a_refused_batch_leaves_no_state() -> None:
    queue = make_queue(FairnessConfig(max_queued=10))
    assert not queue.put(Parcel(route(A), 11))
    assert is_blank(queue)


def test_only_the_failing_target_is_paused(queue: Queue) -> None:
    fail(queue, route(A, "fails.example"), 3)
    put_many(queue, route(A, "fails.example"), 5)
    well = put(queue, [Parcel(route(A, "well.example")), Parcel(route(B, "fails.example"))])
    assert set(take_all(queue)) == set(well)
    assert states(queue) == {(A, "https://fails.example"): BreakerState.OPEN}


def test_a_failing_target_is_probed_with_one_batch(queue: Queue) -> None:
    fail(queue, route(A), 3)
    put_many(queue, route(A), 5)
    wake_at_us = queue.wake_at_us()
    assert wake_at_us == NOW + SECOND
    assert take_all(queue, wake_at_us - 1) == []
    (probe,) = take_all(queue, wake_at_us)
    assert states(queue) == {(A, "https://a.example"): BreakerState.OPEN}
    queue.done(probe, wake_at_us, Verdict.ANSWERED)
    assert queue.breakers() == {}
    assert len(take_all(queue, wake_at_us)) == 4


def test_a_target_that_fails_again_waits_twice_as_long(queue: Queue) -> None:
    fail(queue, route(A), 3)
    put_many(queue, route(A), 5)
    (probe,) = take_all(queue, NOW + SECOND)
    queue.done(probe, NOW + SECOND, Verdict.UNREACHED)
    assert queue.wake_at_us() == NOW + 3 * SECOND
    assert take_all(queue, NOW + 3 * SECOND - 1) == []
    assert len(take_all(queue, NOW + 3 * SECOND)) == 1


def test_an_unsent_probe_is_replaced_by_another(queue: Queue) -> None:
    fail(queue, route(A), 3)
    put_many(queue, route(A), 5)
    (probe,) = take_all(queue, NOW + SECOND)
    queue.done(probe, NOW + SECOND, None)
    assert len(take_all(queue, NOW + SECOND)) == 1


def test_failures_count_even_if_the_target_was_idle(queue: Queue) -> None:
    for second in range(3):
        fail(queue, route(A), 1, NOW + second * SECOND)
    assert states(queue) == {(A, "https://a.example"): BreakerState.OPEN}


def test_failures_are_forgotten_after_a_long_idle_time(queue: Queue) -> None:
    fail(queue, route(A), 3)
    while (wake_at_us := queue.wake_at_us()) is not None:
        assert wake_at_us <= NOW + 5 * SECOND
        assert queue.take(wake_at_us) is None
    assert is_blank(queue)


def test_checks_of_a_target_do_not_pile_up(queue: Queue) -> None:
    for now_us in range(NOW, NOW + 1_000):
        fail(queue, route(A), 1, now_us)
        (batch,) = put_many(queue, route(A), 1)
        assert queue.take(now_us) is batch
        queue.done(batch, now_us, Verdict.ANSWERED)
    assert len(queue._checks.heap) == 1


def test_take_does_not_visit_stuck_batches(queue: Queue) -> None:
    """A hanging target has many batches queued; `take` never asks for their lengths again."""

    class Watched(Parcel):
        looks = 0

        def __len__(self) -> int:
            Watched.looks += 1
            return super().__len__()

    put(queue, (Watched(route(A, "hangs.example")) for _ in range(10_000)))
    take_all(queue)
    Watched.looks = 0
    for _ in range(100):
        (batch,) = put_many(queue, route(A, "well.example"), 1)
        assert queue.take(NOW) is batch
        queue.done(batch, NOW, Verdict.ANSWERED)
    assert Watched.looks == 0
