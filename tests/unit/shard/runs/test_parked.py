"""Which runs are parked, and when they come back: the memory of the shard is bounded."""

from collections import Counter
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.unit.shard.armed_runs import armed

from wheelsched.config import QueueConfig
from wheelsched.core.model import QueueTarget
from wheelsched.ports import Room, Route
from wheelsched.shard.runs.armed_run import Batch, Wait
from wheelsched.shard.runs.parked import ParkedRuns
from wheelsched.shard.runs.phase import Phase

FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))
LIMITS = QueueConfig(
    idle_runs=100, max_waiting_of_tenant=20, max_waiting_of_shard=30, max_parked_of_shard=40
)
SOON_US = 1  # no queue has been idle for long


def route_of(tenant_id: UUID, queue: str = "work") -> Route:
    return Route(tenant_id=tenant_id, target=QueueTarget(queue=queue), origin=queue, room=Room())


def batch_of(route: Route, count: int, size: int = 0) -> Batch:
    runs = [armed(number, route=route) for number in range(count)]
    for run in runs:
        run.phase = Phase.ADMITTED
        run.prepared = replace(run.prepared, content=b"x" * size)
    return Batch(route, runs[0].lane, 0, 0, runs, wait=Wait(10**9, 0))


@pytest.fixture
def parked() -> ParkedRuns:
    return ParkedRuns(LIMITS)


def test_the_runs_of_a_tenant_that_wait_with_their_requests_are_limited(parked: ParkedRuns) -> None:
    assert not parked.must_park(batch_of(route_of(FIRST, "a"), 20), SOON_US)
    assert parked.must_park(batch_of(route_of(FIRST, "b"), 1), SOON_US)
    assert not parked.must_park(batch_of(route_of(SECOND), 1), SOON_US)


def test_the_runs_of_all_tenants_that_wait_with_their_requests_are_limited(
    parked: ParkedRuns,
) -> None:
    parked.count_waiting(Counter({FIRST: 15, SECOND: 15}))
    assert parked.must_park(batch_of(route_of(THIRD), 1), SOON_US)
    parked.count_waiting(Counter({FIRST: 15, SECOND: 14}))
    assert not parked.must_park(batch_of(route_of(THIRD), 1), SOON_US)


def test_a_run_that_a_worker_takes_at_once_is_not_parked(parked: ParkedRuns) -> None:
    parked.count_waiting(Counter({FIRST: 1_000}))
    route = route_of(FIRST)
    assert route.room is not None
    route.room.credits = 1
    assert not parked.must_park(batch_of(route, 1), SOON_US)


def test_large_requests_are_parked_sooner() -> None:
    parked = ParkedRuns(QueueConfig(max_waiting_bytes=1_000))
    assert not parked.must_park(batch_of(route_of(FIRST, "a"), 9, size=100), SOON_US)
    assert parked.must_park(batch_of(route_of(FIRST, "b"), 2, size=100), SOON_US)
    assert not parked.must_park(batch_of(route_of(FIRST, "c"), 2, size=10), SOON_US)


def test_parked_runs_come_back_when_there_is_a_place_or_a_worker(parked: ParkedRuns) -> None:
    first, second = route_of(FIRST, "a"), route_of(FIRST, "b")
    for route in (first, second):
        assert parked.park(batch_of(route, 3)) == []
    parked.count_waiting(Counter({FIRST: 20}))
    assert parked.take_next() == []
    parked.count_waiting(Counter({FIRST: 18}))
    assert [run.route for run in parked.take_next()] == [first, first]
    assert parked.take_next() == []  # those are on their way
    parked.count_waiting(Counter({FIRST: 20}))
    assert second.room is not None
    second.room.credits = 1
    assert [run.route for run in parked.take_next()] == [second] * 3
    assert len(parked) == 1


def test_a_full_shard_parks_an_equal_part_of_each_tenant(parked: ParkedRuns) -> None:
    assert parked.park(batch_of(route_of(FIRST), 40)) == []
    assert len(parked.park(batch_of(route_of(FIRST, "other"), 5))) == 5
    assert parked.park(batch_of(route_of(SECOND), 15)) == []
    assert len(parked.park(batch_of(route_of(SECOND, "other"), 10))) == 5
    assert len(parked) == 60
