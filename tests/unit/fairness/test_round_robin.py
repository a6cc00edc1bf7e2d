"""Round robin: tenants by weight, priorities within a tenant, origins in turn."""

from collections import Counter

import pytest
from tests.unit.fairness.batches import tenant

from wheelsched.fairness.round_robin import OriginQueue, RoundRobin, TenantQueue

QUANTUM = 10
WEIGHTS = {tenant(number): number for number in range(1, 10)}


@pytest.fixture
def ring() -> RoundRobin[str, list[str]]:
    return RoundRobin(QUANTUM, WEIGHTS.__getitem__)


def queue_of(origin: str, weight: int = 1) -> OriginQueue[str, list[str]]:
    return OriginQueue(origin, TenantQueue(tenant(weight)))


def take(ring: RoundRobin[str, list[str]], count: int) -> list[str]:
    taken = [ring.take() for _ in range(count)]
    return [origin for origin, _, _ in filter(None, taken)]


def test_an_empty_ring_returns_none(ring: RoundRobin[str, list[str]]) -> None:
    assert not ring
    assert ring.take() is None


def test_take_returns_the_origin_the_item_and_its_length(ring: RoundRobin[str, list[str]]) -> None:
    queue = queue_of("a")
    item = ["x", "y"]
    ring.push(queue, item, 0)
    assert ring
    assert ring.take() == ("a", item, 2)
    assert not ring


def test_items_of_one_origin_are_first_come_first_served(ring: RoundRobin[str, list[str]]) -> None:
    queue = queue_of("a")
    for name in "xyz":
        ring.push(queue, [name], 0)
    assert [taken[1] for _ in range(3) if (taken := ring.take())] == [["x"], ["y"], ["z"]]


def test_a_small_tenant_is_served_in_the_first_rounds(ring: RoundRobin[str, list[str]]) -> None:
    crowd, few = queue_of("crowd"), queue_of("few")
    for _ in range(50_000):
        ring.push(crowd, ["x"], 0)
    for _ in range(5):
        ring.push(few, ["x"], 0)
    assert take(ring, 2 * QUANTUM).count("few") == 5


def test_the_cost_of_a_batch_is_its_number_of_runs(ring: RoundRobin[str, list[str]]) -> None:
    batched, single = queue_of("batched"), queue_of("single")
    for _ in range(100):
        ring.push(batched, ["x"] * 50, 0)
    for _ in range(5_000):
        ring.push(single, ["x"], 0)
    taken = Counter(take(ring, 1_020))
    assert taken["single"] == pytest.approx(50 * taken["batched"], abs=50 + 2 * QUANTUM)


def test_tenants_are_served_by_weight(ring: RoundRobin[str, list[str]]) -> None:
    light, heavy = queue_of("light", 1), queue_of("heavy", 4)
    for queue in (light, heavy):
        for _ in range(1_000):
            ring.push(queue, ["x"], 0)
    taken = Counter(take(ring, 500))
    assert taken == {"light": 100, "heavy": 400}


def test_a_changed_weight_applies_at_once() -> None:
    weights = {tenant(1): 1, tenant(2): 1}
    ring: RoundRobin[str, list[str]] = RoundRobin(QUANTUM, weights.__getitem__)
    for origin, weight in (("one", 1), ("two", 2)):
        queue = queue_of(origin, weight)
        for _ in range(1_000):
            ring.push(queue, ["x"], 0)
    assert Counter(take(ring, 100)) == {"one": 50, "two": 50}
    weights[tenant(1)] = 9
    take(ring, 20)  # what was granted before
    assert Counter(take(ring, 200)) == {"one": 180, "two": 20}


def test_an_idle_tenant_saves_up_no_credit(ring: RoundRobin[str, list[str]]) -> None:
    seldom, steady = queue_of("seldom"), queue_of("steady")
    for _ in range(1_000):
        ring.push(steady, ["x"], 0)
    ring.push(seldom, ["x"], 0)
    take(ring, 500)
    for _ in range(100):
        ring.push(seldom, ["x"], 0)
    assert take(ring, 4 * QUANTUM).count("seldom") <= 2 * QUANTUM


def test_a_tenant_alone_does_not_wait_for_credit(ring: RoundRobin[str, list[str]]) -> None:
    ring.push(queue_of("a"), ["x"] * 1_000_000, 0)
    assert take(ring, 1) == ["a"]


def test_higher_priorities_go_first(ring: RoundRobin[str, list[str]]) -> None:
    tenant_queue: TenantQueue[str, list[str]] = TenantQueue(tenant(1))
    low, high = OriginQueue("low", tenant_queue), OriginQueue("high", tenant_queue)
    ring.push(low, ["x"], -5)
    ring.push(low, ["y"], 7)
    ring.push(high, ["x"], 3)
    taken = [ring.take() for _ in range(3)]
    assert taken == [("low", ["y"], 1), ("high", ["x"], 1), ("low", ["x"], 1)]


def test_priorities_do_not_compare_across_tenants(ring: RoundRobin[str, list[str]]) -> None:
    urgent, plain = queue_of("urgent"), queue_of("plain")
    for _ in range(100):
        ring.push(plain, ["x"], -100)
        ring.push(urgent, ["x"], 100)
    assert Counter(take(ring, 100)) == {"urgent": 50, "plain": 50}


def test_origins_of_one_tenant_take_turns(ring: RoundRobin[str, list[str]]) -> None:
    tenant_queue: TenantQueue[str, list[str]] = TenantQueue(tenant(1))
    for origin in "abc":
        queue = OriginQueue(origin, tenant_queue)
        for _ in range(3):
            ring.push(queue, ["x"], 0)
    assert take(ring, 9) == list("abcabcabc")


def test_a_closed_origin_is_skipped_until_it_opens(ring: RoundRobin[str, list[str]]) -> None:
    tenant_queue: TenantQueue[str, list[str]] = TenantQueue(tenant(1))
    stuck, free = OriginQueue("stuck", tenant_queue), OriginQueue("free", tenant_queue)
    ring.open_origin(stuck, is_open=False)
    ring.push(stuck, ["x"], 100)
    ring.push(free, ["x"], 0)
    assert take(ring, 2) == ["free"]
    assert not ring
    ring.open_origin(stuck, is_open=True)
    assert take(ring, 2) == ["stuck"]


def test_a_closed_tenant_is_skipped_until_it_opens(ring: RoundRobin[str, list[str]]) -> None:
    full, other = queue_of("full"), queue_of("other")
    ring.push(full, ["x"], 0)
    ring.push(other, ["x"], 0)
    ring.open_tenant(full.tenant_queue, is_open=False)
    assert take(ring, 2) == ["other"]
    ring.open_tenant(full.tenant_queue, is_open=True)
    assert take(ring, 2) == ["full"]
