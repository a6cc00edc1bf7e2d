"""Batches that wait for the credits of a room."""

from tests.unit.fairness.batches import Parcel, queue_route, route, tenant

from wheelsched.config import FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.ports import Room
from wheelsched.values.duration import SECOND

NOW = 1_000 * SECOND
TENANT = tenant(1)


def make_queue(config: FairnessConfig | None = None) -> FairQueue[Parcel]:
    return FairQueue(config or FairnessConfig(), lambda _: 1)


def give(queue: FairQueue[Parcel], room: Room, credits_: int) -> None:
    room.credits += credits_
    queue.rooms.changed(room)


def take(queue: FairQueue[Parcel], room: Room) -> list[int] | None:
    """Takes a batch and hands it out, as the sender and the dispatcher do."""
    batch = queue.take(NOW)
    if batch is None:
        return None
    room.credits -= len(batch)
    queue.rooms.changed(room)
    queue.done(batch, NOW, None)
    return batch.runs


def test_nothing_is_taken_without_credits() -> None:
    queue, room = make_queue(), Room()
    assert queue.put(Parcel(queue_route(TENANT, room), 3))
    assert take(queue, room) is None
    assert room.waiting == 3
    assert queue.in_flight == 0


def test_a_batch_larger_than_the_room_is_split_and_the_rest_stays_in_front() -> None:
    queue, room = make_queue(), Room()
    to = queue_route(TENANT, room)
    assert queue.put(Parcel(to, 5))
    later = Parcel(to)
    later.runs = [99]
    assert queue.put(later)
    give(queue, room, 2)
    assert take(queue, room) == [0, 1]
    assert take(queue, room) is None
    assert room.waiting == 4
    give(queue, room, 10)
    assert take(queue, room) == [2, 3, 4]
    assert take(queue, room) == [99]
    assert room.waiting == len(queue) == 0
    assert room.credits == 6


def test_a_queue_without_workers_uses_up_no_limit() -> None:
    config = FairnessConfig(in_flight=2, in_flight_per_tenant=2, in_flight_per_origin=2)
    queue, room = make_queue(config), Room()
    for lane in Lane:
        for _ in range(10):
            assert queue.put(Parcel(queue_route(TENANT, room), lane=lane))
    callbacks = [Parcel(route(TENANT)) for _ in range(2)]
    assert all(map(queue.put, callbacks))
    assert [queue.take(NOW), queue.take(NOW)] == callbacks


def test_a_batch_that_is_put_back_goes_first() -> None:
    queue, room = make_queue(), Room()
    to = queue_route(TENANT, room)
    first, second = Parcel(to, 2), Parcel(to, 3)
    assert queue.put(first)
    assert queue.put(second)
    give(queue, room, 2)
    taken = queue.take(NOW)
    assert taken is first
    queue.done(first, NOW, None)
    queue.put_back(first)
    assert room.waiting == 5
    assert queue.take(NOW) is first


def test_a_batch_that_is_put_back_comes_before_one_that_was_split() -> None:
    queue, room = make_queue(), Room()
    batch = Parcel(queue_route(TENANT, room), 4)
    assert queue.put(batch)
    give(queue, room, 2)
    taken = queue.take(NOW)
    assert taken is not None
    queue.done(taken, NOW, None)
    queue.put_back(taken)
    give(queue, room, 2)
    assert take(queue, room) == [0, 1]
    assert take(queue, room) == [2, 3]


def test_late_batches_wait_until_no_batch_on_time_can_go() -> None:
    queue, room = make_queue(), Room()
    to = queue_route(TENANT, room)
    late, on_time = Parcel(to, lane=Lane.LATE), Parcel(to)
    assert queue.put(late)
    assert queue.put(on_time)
    give(queue, room, 2)
    assert [queue.take(NOW), queue.take(NOW)] == [on_time, late]


def test_queues_that_share_a_room_close_together() -> None:
    queue, room = make_queue(), Room()
    assert queue.put(Parcel(queue_route(TENANT, room, "a")))
    assert queue.put(Parcel(queue_route(TENANT, room, "b")))
    give(queue, room, 1)
    assert take(queue, room) is not None
    assert take(queue, room) is None


def test_expired_batches_are_removed_from_the_front() -> None:
    queue, room = make_queue(), Room()
    to = queue_route(TENANT, room)
    batches = [Parcel(to, 2) for _ in range(3)]
    for number, batch in enumerate(batches):
        batch.claim_by_us = NOW + number
        assert queue.put(batch)
    assert queue.rooms.oldest(room) is batches[0]
    assert queue.rooms.take_expired(NOW + 1) == batches[:2]
    assert room.waiting == len(queue) == 2
    assert queue.rooms.take_expired(NOW + 1) == []
    give(queue, room, 5)
    assert queue.take(NOW) is batches[2]


def test_an_origin_whose_batches_have_all_expired_is_removed() -> None:
    queue, room = make_queue(), Room()
    batch = Parcel(queue_route(TENANT, room))
    batch.claim_by_us = NOW
    assert queue.put(batch)
    assert queue.rooms.take_expired(NOW) == [batch]
    wake_at_us = queue.wake_at_us()
    assert wake_at_us is not None
    assert queue.take(wake_at_us) is None
    assert not queue.rooms.known


def test_withdrawn_runs_are_removed_wherever_they_are() -> None:
    queue, room = make_queue(), Room()
    to = queue_route(TENANT, room)
    for number in range(3):
        batch = Parcel(to)
        batch.runs = [number, 10 + number]
        assert queue.put(batch)

    def strip(batch: Parcel) -> int:
        kept = [run for run in batch.runs if run not in (1, 11, 12)]
        stripped, batch.runs = len(batch.runs) - len(kept), kept
        return stripped

    room.withdrawn = 3
    queue.rooms.drop_withdrawn(room, strip, NOW)
    assert (room.withdrawn, room.waiting, len(queue)) == (0, 3, 3)
    give(queue, room, 5)
    assert [take(queue, room), take(queue, room), take(queue, room)] == [[0, 10], [2], None]
