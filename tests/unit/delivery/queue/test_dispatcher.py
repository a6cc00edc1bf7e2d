"""Credits, turns and notices of the dispatcher of queues."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest

from wheelsched.core.model import QueueTarget, RunKey, Trigger
from wheelsched.core.outcome import HANDED_OUT, HandedOut, Outcome, Succeeded
from wheelsched.delivery.queue.dispatcher import QueueDispatcher, QueueRoute
from wheelsched.ports import Callback, Prepared, Room
from wheelsched.ports.work import Attempted, Pool, QueueRun, Receipt, Waiting
from wheelsched.testing import VirtualClock

TENANT, OTHER = UUID(int=1), UUID(int=2)
LEASE_END_US = 1_800_000_005_000_000


class Process:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.runs: list[QueueRun] = []
        self.cancelled: list[Attempted] = []
        self.waits: list[tuple[str, int]] = []
        self.until_us = 0

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        assert all(run.queue in pool.queues for run in runs)
        self.runs += runs
        self.until_us = until_us

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        self.cancelled += attempts

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        self.waits.append((queue, count))


class Owner:
    """A shard that keeps what is reported to it."""

    def __init__(self) -> None:
        self.rooms: list[tuple[Room, int]] = []
        self.given_back: list[Attempted] = []

    def room_changed(self, room: Room) -> None:
        self.rooms.append((room, room.credits))

    def lease_end_us(self) -> int:
        return LEASE_END_US

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        return [Receipt.WRITTEN] * len(outcomes)

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        self.given_back += attempts

    def waiting(self, tenant_id: UUID) -> list[Waiting]:
        return [Waiting("a", 1)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def dispatcher(clock: VirtualClock) -> QueueDispatcher:
    dispatcher = QueueDispatcher(clock)
    dispatcher.serve(Owner())
    return dispatcher


def callback(number: int = 0, payload: bytes = b"null") -> Callback:
    return Callback(
        key=RunKey(UUID(int=number), 1_800_000_000_000_000),
        job_name='a "name"',
        payload=payload,
        secrets=("whsec_secret",),
        scheduled_us=1_800_000_000_000_000,
        send_at_us=1_800_000_000_000_000,
        timeout_us=120_000_000,
        attempt=2,
        token=7,
        trigger=Trigger.SCHEDULE,
        idempotency_key="key",
    )


def route_of(dispatcher: QueueDispatcher, queue: str = "a", tenant_id: UUID = TENANT) -> QueueRoute:
    return dispatcher.route(tenant_id, QueueTarget(queue=queue))


async def send(dispatcher: QueueDispatcher, route: QueueRoute, count: int) -> HandedOut | None:
    batch: list[Prepared] = [dispatcher.prepare(route, callback(each)) for each in range(count)]
    return await dispatcher.send(route, batch, lambda: True)


def pool_of(*queues: str, tenant_id: UUID = TENANT) -> Pool:
    return Pool(tenant_id, queues)


async def test_content_is_the_claim_without_its_end_and_the_payload_byte_for_byte(
    dispatcher: QueueDispatcher,
) -> None:
    payload = b'{ "b":1.50, "a":"\\u00e9" }'
    prepared = dispatcher.prepare(route_of(dispatcher), callback(5, payload))
    content = prepared.run.content
    assert content.endswith(b',"payload":' + payload)
    assert msgspec.json.decode(content + b',"lease_expires_at":"x"}') == {
        "run_id": f"{UUID(int=5).hex}-1800000000000000",
        "job_id": str(UUID(int=5)),
        "job_name": 'a "name"',
        "queue": "a",
        "scheduled_at": "2027-01-15T08:00:00Z",
        "attempt": 2,
        "fencing_token": 7,
        "idempotency_key": "key",
        "trigger": "schedule",
        "timeout_ms": 120_000,
        "payload": {"b": 1.5, "a": "é"},
        "lease_expires_at": "x",
    }
    assert prepared.run.attempt == Attempted(callback(5).key, 7)
    assert b"whsec" not in content


async def test_a_route_is_one_object_while_it_is_used(dispatcher: QueueDispatcher) -> None:
    route = route_of(dispatcher)
    assert route_of(dispatcher) is route
    brief = dispatcher.route(TENANT, QueueTarget(queue="a", claim_within_us=1))
    assert brief is not route
    assert brief.room is route.room
    assert brief.origin != route.origin
    assert route_of(dispatcher, tenant_id=OTHER).room is not route.room


async def test_a_hand_out_uses_credits(dispatcher: QueueDispatcher) -> None:
    process, route = Process(), route_of(dispatcher)
    desk = dispatcher.open(process)
    desk.lend(pool_of("a"), 3)
    assert await send(dispatcher, route, 2) is HANDED_OUT
    assert [run.attempt.key.job_id.int for run in process.runs] == [0, 1]
    assert process.until_us == LEASE_END_US
    assert route.line.credits == 1
    assert await send(dispatcher, route, 2) is None
    assert len(process.runs) == 2


async def test_nothing_is_handed_out_if_begin_refuses(dispatcher: QueueDispatcher) -> None:
    process, route = Process(), route_of(dispatcher)
    dispatcher.open(process).lend(pool_of("a"), 1)
    batch = [dispatcher.prepare(route, callback())]
    assert await dispatcher.send(route, batch, lambda: False) is None
    assert process.runs == []
    assert route.line.credits == 1


async def test_a_credit_for_several_queues_is_used_once(dispatcher: QueueDispatcher) -> None:
    owner, process = Owner(), Process()
    a, b = route_of(dispatcher, "a"), route_of(dispatcher, "b")
    dispatcher.serve(owner)
    dispatcher.open(process).lend(pool_of("a", "b"), 1)
    assert (a.line.credits, b.line.credits) == (1, 1)
    await send(dispatcher, a, 1)
    assert (a.line.credits, b.line.credits) == (0, 0)
    assert owner.rooms == [(a.line, 1), (b.line, 1), (a.line, 0), (b.line, 0)]


async def test_credits_are_for_one_tenant(dispatcher: QueueDispatcher) -> None:
    process = Process()
    dispatcher.open(process).lend(pool_of("a", tenant_id=OTHER), 5)
    assert await send(dispatcher, route_of(dispatcher), 1) is None


async def test_desks_take_turns(dispatcher: QueueDispatcher) -> None:
    processes, route = [Process() for _ in range(3)], route_of(dispatcher)
    for process in processes:
        dispatcher.open(process).lend(pool_of("a"), 100)
    for _ in range(6):
        await send(dispatcher, route, 1)
    assert [len(process.runs) for process in processes] == [2, 2, 2]
    await send(dispatcher, route, 90)
    assert [len(process.runs) for process in processes] == [32, 32, 32]


async def test_a_batch_goes_to_those_with_credits(dispatcher: QueueDispatcher) -> None:
    poor, rich, route = Process(), Process(), route_of(dispatcher)
    dispatcher.open(poor).lend(pool_of("a"), 2)
    dispatcher.open(rich).lend(pool_of("a"), 10)
    assert await send(dispatcher, route, 12) is HANDED_OUT
    assert (len(poor.runs), len(rich.runs)) == (2, 10)
    assert route.line.credits == 0


async def test_unused_credits_are_recalled(dispatcher: QueueDispatcher) -> None:
    route, returned = route_of(dispatcher), list[int]()
    desk = dispatcher.open(Process())
    desk.lend(pool_of("a"), 5)
    desk.recall(pool_of("a"), 3, returned.append)
    desk.recall(pool_of("a"), 3, returned.append)
    desk.recall(pool_of("b"), 3, returned.append)
    assert returned == [3, 2, 0]
    assert route.line.credits == 0


async def test_a_paused_desk_hands_out_nothing(dispatcher: QueueDispatcher) -> None:
    owner, process, route = Owner(), Process(), route_of(dispatcher)
    dispatcher.serve(owner)
    desk = dispatcher.open(process)
    desk.lend(pool_of("a"), 2)
    desk.pause()
    desk.lend(pool_of("a"), 1)
    desk.lend(pool_of("a", "b"), 1)
    assert route.line.credits == 0
    desk.resume()
    assert route.line.credits == 4
    assert [credit for room, credit in owner.rooms if room is route.line] == [2, 0, 3]
    assert await send(dispatcher, route, 4) is HANDED_OUT


async def test_a_pool_that_is_forgotten_has_no_credits(dispatcher: QueueDispatcher) -> None:
    route = route_of(dispatcher)
    desk = dispatcher.open(Process())
    desk.lend(pool_of("a"), 2)
    desk.forget(pool_of("a"))
    desk.forget(pool_of("a"))
    assert route.line.credits == 0
    assert not route.line.pools


async def test_a_closed_desk_has_no_credits(dispatcher: QueueDispatcher) -> None:
    route, process, returned = route_of(dispatcher), Process(), list[int]()
    desk = dispatcher.open(process)
    desk.lend(pool_of("a"), 2)
    desk.close()
    desk.close()
    desk.lend(pool_of("a"), 2)
    desk.recall(pool_of("a"), 2, returned.append)
    assert route.line.credits == 0
    assert returned == []
    dispatcher.cancel(TENANT, [Attempted(callback().key, 1)])
    assert process.cancelled == []


async def test_only_processes_with_workers_of_the_tenant_are_told_to_cancel(
    dispatcher: QueueDispatcher,
) -> None:
    ours, others = Process(), Process()
    dispatcher.open(ours).lend(pool_of("a"), 0)
    dispatcher.open(others).lend(pool_of("a", tenant_id=OTHER), 0)
    attempt = Attempted(callback().key, 1)
    dispatcher.cancel(TENANT, [attempt])
    assert (ours.cancelled, others.cancelled) == ([attempt], [])


async def test_without_a_shard_outcomes_are_unknown(dispatcher: QueueDispatcher) -> None:
    desk, attempt = dispatcher.open(Process()), Attempted(callback().key, 1)
    dispatcher.serve(None)
    assert await desk.finish([(attempt, Succeeded())]) == [Receipt.UNKNOWN]
    assert await desk.waiting(TENANT) == []
    desk.give_back([attempt])
    owner = Owner()
    dispatcher.serve(owner)
    assert await desk.finish([(attempt, Succeeded())]) == [Receipt.WRITTEN]
    assert await desk.waiting(TENANT) == [Waiting("a", 1)]
    desk.give_back([attempt])
    assert owner.given_back == [attempt]


async def test_notices_of_waiting_runs_are_put_together(
    dispatcher: QueueDispatcher, clock: VirtualClock
) -> None:
    process, route = Process(), route_of(dispatcher)
    desk = dispatcher.open(process)
    desk.lend(pool_of("a"), 0)
    for count in range(1, 101):
        route.line.waiting = count
        route.line.waiting_changed()
    await asyncio.sleep(0)
    assert process.waits == [("a", 100)]
    for count in range(100, 201):
        route.line.waiting = count
        route.line.waiting_changed()
        await asyncio.sleep(0)
    assert process.waits == [("a", 100)]
    await clock.advance(100_000_000)
    assert process.waits == [("a", 100), ("a", 200)]
    route.line.waiting = 0
    route.line.waiting_changed()
    await asyncio.sleep(0)
    assert process.waits[-1] == ("a", 0)


async def test_runs_that_find_a_credit_are_not_announced(dispatcher: QueueDispatcher) -> None:
    process, route = Process(), route_of(dispatcher)
    dispatcher.open(process).lend(pool_of("a"), 5)
    route.line.waiting = 3
    route.line.waiting_changed()
    route.line.waiting = 0
    route.line.waiting_changed()
    await asyncio.sleep(0)
    assert process.waits == []


async def test_a_new_lease_starts_with_nothing_that_waits(dispatcher: QueueDispatcher) -> None:
    process, route = Process(), route_of(dispatcher)
    dispatcher.open(process).lend(pool_of("a"), 0)
    route.line.waiting = 3
    route.line.waiting_changed()
    await asyncio.sleep(0)
    dispatcher.serve(None)
    await asyncio.sleep(0)
    assert process.waits == [("a", 3), ("a", 0)]


async def test_unused_lines_are_forgotten(dispatcher: QueueDispatcher) -> None:
    dispatcher.serve(None)  # the owner of these tests keeps what it was told of
    desk = dispatcher.open(Process())
    desk.lend(pool_of("a"), 1)
    assert len(dispatcher._lines.all()) == 1
    desk.forget(pool_of("a"))
    assert dispatcher._lines.all() == []
