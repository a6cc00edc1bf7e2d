"""Whose turn it is: tenants by weight, priorities within a tenant, targets in rotation."""

from collections import Counter

import pytest
from tests.unit.shard.batches import tenant

from wheelsched.shard.turns import Line, Share, Turns

QUANTUM = 10
WEIGHTS = {tenant(number): number for number in range(1, 10)}


@pytest.fixture
def turns() -> Turns[str, list[str]]:
    return Turns(QUANTUM, WEIGHTS.__getitem__)


def line_of(owner: str, weight: int = 1) -> Line[str, list[str]]:
    return Line(owner, Share(tenant(weight)))


def take(turns: Turns[str, list[str]], count: int) -> list[str]:
    taken = [turns.take() for _ in range(count)]
    return [owner for owner, _, _ in filter(None, taken)]


def test_nothing_comes_of_nothing(turns: Turns[str, list[str]]) -> None:
    assert not turns
    assert turns.take() is None


def test_gives_the_owner_the_item_and_its_length(turns: Turns[str, list[str]]) -> None:
    line = line_of("a")
    item = ["x", "y"]
    turns.push(line, item, 0)
    assert turns
    assert turns.take() == ("a", item, 2)
    assert not turns


def test_a_line_is_first_come_first_served(turns: Turns[str, list[str]]) -> None:
    line = line_of("a")
    for name in "xyz":
        turns.push(line, [name], 0)
    assert [taken[1] for _ in range(3) if (taken := turns.take())] == [["x"], ["y"], ["z"]]


def test_a_small_tenant_gets_through_in_the_first_rounds(turns: Turns[str, list[str]]) -> None:
    crowd, few = line_of("crowd"), line_of("few")
    for _ in range(50_000):
        turns.push(crowd, ["x"], 0)
    for _ in range(5):
        turns.push(few, ["x"], 0)
    assert take(turns, 2 * QUANTUM).count("few") == 5


def test_cost_counts_in_runs_and_not_in_batches(turns: Turns[str, list[str]]) -> None:
    batched, single = line_of("batched"), line_of("single")
    for _ in range(100):
        turns.push(batched, ["x"] * 50, 0)
    for _ in range(5_000):
        turns.push(single, ["x"], 0)
    taken = Counter(take(turns, 1_020))
    assert taken["single"] == pytest.approx(50 * taken["batched"], abs=50 + 2 * QUANTUM)


def test_weights_share_out_the_turns(turns: Turns[str, list[str]]) -> None:
    light, heavy = line_of("light", 1), line_of("heavy", 4)
    for line in (light, heavy):
        for _ in range(1_000):
            turns.push(line, ["x"], 0)
    taken = Counter(take(turns, 500))
    assert taken == {"light": 100, "heavy": 400}


def test_a_weight_counts_as_soon_as_it_changes() -> None:
    weights = {tenant(1): 1, tenant(2): 1}
    turns: Turns[str, list[str]] = Turns(QUANTUM, weights.__getitem__)
    for owner, weight in (("one", 1), ("two", 2)):
        line = line_of(owner, weight)
        for _ in range(1_000):
            turns.push(line, ["x"], 0)
    assert Counter(take(turns, 100)) == {"one": 50, "two": 50}
    weights[tenant(1)] = 9
    take(turns, 20)  # what was granted before
    assert Counter(take(turns, 200)) == {"one": 180, "two": 20}


def test_idle_time_is_not_saved_up(turns: Turns[str, list[str]]) -> None:
    seldom, steady = line_of("seldom"), line_of("steady")
    for _ in range(1_000):
        turns.push(steady, ["x"], 0)
    turns.push(seldom, ["x"], 0)
    take(turns, 500)
    for _ in range(100):
        turns.push(seldom, ["x"], 0)
    assert take(turns, 4 * QUANTUM).count("seldom") <= 2 * QUANTUM


def test_a_tenant_alone_need_not_wait_for_credit(turns: Turns[str, list[str]]) -> None:
    turns.push(line_of("a"), ["x"] * 1_000_000, 0)
    assert take(turns, 1) == ["a"]


def test_higher_priorities_go_first(turns: Turns[str, list[str]]) -> None:
    share: Share[str, list[str]] = Share(tenant(1))
    low, high = Line("low", share), Line("high", share)
    turns.push(low, ["x"], -5)
    turns.push(low, ["y"], 7)
    turns.push(high, ["x"], 3)
    taken = [turns.take() for _ in range(3)]
    assert taken == [("low", ["y"], 1), ("high", ["x"], 1), ("low", ["x"], 1)]


def test_priorities_are_of_one_tenant_only(turns: Turns[str, list[str]]) -> None:
    urgent, plain = line_of("urgent"), line_of("plain")
    for _ in range(100):
        turns.push(plain, ["x"], -100)
        turns.push(urgent, ["x"], 100)
    assert Counter(take(turns, 100)) == {"urgent": 50, "plain": 50}


def test_targets_of_one_tenant_take_turns(turns: Turns[str, list[str]]) -> None:
    share: Share[str, list[str]] = Share(tenant(1))
    for owner in "abc":
        line = Line(owner, share)
        for _ in range(3):
            turns.push(line, ["x"], 0)
    assert take(turns, 9) == list("abcabcabc")


def test_a_closed_line_is_passed_over_until_it_opens(turns: Turns[str, list[str]]) -> None:
    share: Share[str, list[str]] = Share(tenant(1))
    stuck, free = Line("stuck", share), Line("free", share)
    turns.open_line(stuck, is_open=False)
    turns.push(stuck, ["x"], 100)
    turns.push(free, ["x"], 0)
    assert take(turns, 2) == ["free"]
    assert not turns
    turns.open_line(stuck, is_open=True)
    assert take(turns, 2) == ["stuck"]


def test_a_closed_share_is_passed_over_until_it_opens(turns: Turns[str, list[str]]) -> None:
    full, other = line_of("full"), line_of("other")
    turns.push(full, ["x"], 0)
    turns.push(other, ["x"], 0)
    turns.open_share(full.share, is_open=False)
    assert take(turns, 2) == ["other"]
    turns.open_share(full.share, is_open=True)
    assert take(turns, 2) == ["full"]
