"""The stream: what it promises beyond the contract of all protocols."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from tests.contract.work.conftest import Scheduler
from tests.contract.work.protocols import receive, send
from tests.waiting import until

from wheelsched.api.work import session
from wheelsched.api.work.reports import Reports
from wheelsched.api.work.stream import WorkStream
from wheelsched.clock import SystemClock
from wheelsched.core.outcome import Succeeded
from wheelsched.errors import WheelschedError
from wheelsched.ports.work import Attempted, QueueRun
from wheelsched.testing import VirtualClock
from wheelsched.wire import stream as wire
from wheelsched.wire.stream import MAX_FRAME_BYTES, SUBPROTOCOL

SECOND_NS = 1_000_000_000


class Connector:
    """Opens streams."""

    def __init__(self, scheduler: Scheduler, session: ClientSession) -> None:
        self._scheduler = scheduler
        self._session = session

    async def open(
        self, token: str | None = None, protocol: str = SUBPROTOCOL
    ) -> ClientWebSocketResponse:
        api = self._scheduler.api
        return await self._session.ws_connect(
            f"{api.url}/api/v1/stream",
            headers={"Authorization": f"Bearer {token or api.token}"},
            protocols=[protocol],
            max_msg_size=64 << 20,
        )

    async def register(self, credits: int = 10, **fields: Any) -> ClientWebSocketResponse:  # noqa: A002
        websocket = await self.open()
        hello = {"worker_id": "w1", "queues": ["billing"], "credits": credits} | fields
        await send(websocket, type="hello", **hello)
        assert (await receive(websocket))["type"] == "welcome"

        async def is_registered() -> bool:
            return bool(self._scheduler.work.subscriptions)

        await until(is_registered)
        return websocket


@pytest.fixture
async def connector(scheduler: Scheduler) -> AsyncIterator[Connector]:
    async with ClientSession() as session:
        yield Connector(scheduler, session)


async def closed(websocket: ClientWebSocketResponse) -> int | None:
    """The code with which the other side closed the stream."""
    while (await websocket.receive(timeout=60)).type is WSMsgType.TEXT:
        pass
    return websocket.close_code


async def test_the_first_message_is_answered_with_the_timing(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.open()
    await send(websocket, type="hello", worker_id="w1", queues=["billing", "mail"], credits=3)
    assert await receive(websocket) == {
        "type": "welcome",
        "alive_ms": 10_000,
        "silence_ms": 25_000,
        "delivery_lease_ms": 5_000,
    }
    (subscription,) = scheduler.work.subscriptions
    assert (subscription.queues, subscription.credits) == (("billing", "mail"), 3)


async def test_runs_of_one_moment_arrive_in_one_message(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register(credits=100)
    scheduler.add(100)
    assert len((await receive(websocket))["runs"]) == 100


async def test_large_runs_are_split_into_several_messages(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register(credits=10)
    scheduler.work.add(scheduler.api.tenant_id, count=10, payload="x" * (MAX_FRAME_BYTES // 4))
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes.append(len((await receive(websocket))["runs"]))
    assert sizes == [3, 3, 3, 1]


async def test_outcomes_may_bring_credits(scheduler: Scheduler, connector: Connector) -> None:
    websocket = await connector.register(credits=1)
    first, second = scheduler.add(2)
    (run,) = (await receive(websocket))["runs"]
    item = {"run_id": run["run_id"], "token": run["fencing_token"], "ok": True}
    await send(websocket, type="outcomes", id=7, items=[item], credits=1)
    got = [await receive(websocket), await receive(websocket)]
    messages = {message["type"]: message for message in got}
    answer = {"run_id": first.run_id, "accepted": True}
    assert messages["outcomes"] == {"type": "outcomes", "id": 7, "items": [answer]}
    assert messages["runs"]["runs"][0]["run_id"] == second.run_id
    assert first.outcome == Succeeded()


async def test_a_worker_hears_of_a_cancelled_run_at_once(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register()
    (added,) = scheduler.add()
    await receive(websocket)
    scheduler.work.cancel(added)
    item = {"run_id": added.run_id, "token": added.token}
    assert await receive(websocket) == {"type": "cancel", "items": [item]}


async def test_a_run_that_is_given_back_goes_to_another_worker(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register(credits=1)
    (added,) = scheduler.add()
    await receive(websocket)
    item = {"run_id": added.run_id, "token": added.token}
    await send(websocket, type="give_back", items=[item, {"run_id": "nonsense", "token": 1}])
    another = await connector.register(credits=1)
    (run,) = (await receive(another))["runs"]
    assert (run["run_id"], added.given_back) == (added.run_id, 1)


async def test_after_a_stop_no_run_follows(scheduler: Scheduler, connector: Connector) -> None:
    websocket = await connector.register(credits=5)
    (added,) = scheduler.add()
    (run,) = (await receive(websocket))["runs"]
    await send(websocket, type="stop")
    assert await receive(websocket) == {"type": "stopped"}
    assert scheduler.work.subscriptions == []
    scheduler.add()
    item = {"run_id": run["run_id"], "token": run["fencing_token"], "ok": True}
    await send(websocket, type="outcomes", id=1, items=[item])
    assert (await receive(websocket))["type"] == "outcomes"
    assert added.outcome == Succeeded()


async def test_heartbeats_have_the_lease_of_the_stream(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register(lease="40s")
    (added,) = scheduler.add()
    await receive(websocket)
    item = {"run_id": added.run_id, "token": added.token}
    await send(websocket, type="heartbeats", id=3, items=[item])
    answer = {"run_id": added.run_id, "held": True, "cancel": False}
    assert await receive(websocket) == {"type": "heartbeats", "id": 3, "items": [answer]}
    assert scheduler.work.leases == [40_000_000]


async def test_an_idle_stream_gets_a_sign_of_life(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register()
    await scheduler.api.clock.advance(11 * SECOND_NS)
    assert await receive(websocket) == {"type": "alive"}


async def test_a_silent_worker_loses_its_stream_and_its_credits(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.register()
    await scheduler.api.clock.advance(20 * SECOND_NS)
    await send(websocket, type="alive")
    await send(websocket, type="heartbeats", id=1, items=[])
    while (await receive(websocket))["type"] != "heartbeats":
        pass
    await scheduler.api.clock.advance(20 * SECOND_NS)
    assert len(scheduler.work.subscriptions) == 1
    await scheduler.api.clock.advance(10 * SECOND_NS)
    assert await closed(websocket) in (None, 1006)

    async def is_gone() -> bool:
        return not scheduler.work.subscriptions

    await until(is_gone)


async def test_a_worker_that_does_not_react_to_runs_loses_its_stream_after_the_delivery_lease(
    scheduler: Scheduler, connector: Connector
) -> None:
    """Its connection may be dead although no side has closed it: it would lose more runs."""
    websocket = await connector.register(credits=100)
    scheduler.add()
    await receive(websocket)
    await scheduler.api.clock.advance(4 * SECOND_NS)
    assert len(scheduler.work.subscriptions) == 1
    await scheduler.api.clock.advance(3 * SECOND_NS)
    assert await closed(websocket) in (None, 1006)


async def test_a_connection_that_does_not_register_is_cut(
    scheduler: Scheduler, connector: Connector
) -> None:
    websocket = await connector.open()
    await scheduler.api.clock.advance(12 * SECOND_NS)
    assert await closed(websocket) in (None, 1006)


async def test_a_revoked_token_ends_the_stream(scheduler: Scheduler, connector: Connector) -> None:
    api = scheduler.api
    await api.add_token("wst_worker", api.tenant_id, "work")
    websocket = await connector.open("wst_worker")
    await send(websocket, type="hello", worker_id="w1", queues=["billing"], credits=1)
    await receive(websocket)
    tokens = (await api.get("/tokens")).body["items"]
    (token_id,) = [each["token_id"] for each in tokens if each["name"] == "wst_worker"]
    assert (await api.call("DELETE", f"/tokens/{token_id}")).status == 200
    closing = asyncio.create_task(closed(websocket))
    await api.clock.advance(5 * SECOND_NS)
    assert await closing == 1008


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"type": "credits", "credits": 1}, "/type"),  # before hello
        ({"type": "hello", "worker_id": "w1", "queues": []}, "/queues"),
        ({"type": "hello", "worker_id": "w1", "queues": ["no name"]}, "/queues/0"),
        ({"type": "hello", "worker_id": "w1", "queues": ["a"], "credits": 100_001}, "/credits"),
        ({"type": "hello", "worker_id": "w1", "queues": ["a"], "lease": "1s"}, "/lease"),
        ({"type": "salute"}, "/type"),
    ],
)
async def test_an_invalid_message_ends_the_stream_with_a_problem(
    connector: Connector, message: dict[str, Any], pointer: str
) -> None:
    websocket = await connector.open()
    await send(websocket, **message)
    answer = await receive(websocket)
    assert answer["type"] == "problem"
    assert [each["pointer"] for each in answer["problem"]["errors"]] == [pointer]
    assert await closed(websocket) == 1008


async def test_a_worker_cannot_pile_up_credits(connector: Connector) -> None:
    websocket = await connector.register(credits=100_000)
    await send(websocket, type="credits", credits=1)
    answer = await receive(websocket)
    assert answer["problem"]["errors"][0]["pointer"] == "/credits"


@pytest.mark.parametrize("sent", ["{", "[]", "\ud800", '"hello"'])
async def test_an_invalid_message_ends_the_stream(connector: Connector, sent: str) -> None:
    websocket = await connector.open()
    await websocket.send_frame(sent.encode("utf-8", "surrogatepass"), WSMsgType.TEXT)
    assert await closed(websocket) in (1007, 1008)


async def test_a_binary_frame_ends_the_stream(connector: Connector) -> None:
    websocket = await connector.register()
    await websocket.send_bytes(b"{}")
    assert (await receive(websocket))["type"] == "problem"
    assert await closed(websocket) == 1008


async def test_a_stream_needs_its_subprotocol(scheduler: Scheduler, connector: Connector) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await connector.open(protocol="another")
    assert refused.value.status == 426
    answer = await scheduler.api.get("/stream")
    assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")
    with pytest.raises(WSServerHandshakeError) as unknown:
        await connector.open("wst_unknown")
    assert unknown.value.status == 401


async def test_a_stopping_process_tells_its_workers_to_go_elsewhere(
    scheduler: Scheduler, connector: Connector
) -> None:
    """A worker may still report what it has finished."""
    websocket = await connector.register()
    (added,) = scheduler.add()
    (run,) = (await receive(websocket))["runs"]
    stopping = asyncio.create_task(scheduler.api.stop())
    assert (await receive(websocket))["type"] == "goodbye"
    assert scheduler.work.subscriptions == []
    item = {"run_id": run["run_id"], "token": run["fencing_token"], "ok": True}
    await send(websocket, type="outcomes", id=1, items=[item], credits=1)
    assert (await receive(websocket))["items"][0]["accepted"] is True
    assert added.outcome == Succeeded()
    await websocket.close()
    await stopping


async def test_a_worker_that_reads_slowly_gets_no_more_than_fits_into_memory(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_UNSENT_BYTES", 2_000)
    work, tenant_id = scheduler.work, scheduler.api.tenant_id
    added = scheduler.add(100)
    slow = session.Session(work, tenant_id)
    slow.register(["billing"], 0)
    for _ in range(100):
        slow.add_credits(1)
    assert 5 <= sum(run.until_us is not None for run in added) <= 50
    sent: list[Attempted] = []
    while (batch := slow.take_batch()) is not None:
        sent += [run.attempt for run in batch[1]]
    assert sorted(sent) == sorted(Attempted(run.key, run.token) for run in added)
    await slow.close()


class GoneWorker:
    """A connection that is lost after its first message."""

    def __init__(self) -> None:
        self.is_closed = False

    async def receive(self) -> wire.WorkerMessage | None:
        return wire.Hello(worker_id="w1", queues=("billing",), credits=1)

    async def send(self, message: wire.SchedulerMessage) -> None:
        raise ConnectionResetError

    async def send_runs(self, runs: Sequence[QueueRun], expires_us: int) -> None:
        raise ConnectionResetError

    async def close(self, error: WheelschedError | None) -> None:
        self.is_closed = True

    def cut(self) -> None:
        raise AssertionError


async def test_a_worker_that_leaves_before_its_welcome_is_not_a_failure(
    scheduler: Scheduler,
) -> None:
    work, tenant_id = scheduler.work, scheduler.api.tenant_id
    registered = session.Session(work, tenant_id)
    stream = WorkStream(GoneWorker(), registered, Reports(work), tenant_id, SystemClock())
    await stream.run()
    assert work.subscriptions == []


class SlowWorker:
    """A connection that takes one message at a time, as gRPC does, and each of them slowly."""

    def __init__(self) -> None:
        self.is_free = asyncio.Event()
        self.sent: list[wire.SchedulerMessage] = []
        self._messages: list[wire.WorkerMessage | None] = [
            wire.Hello(worker_id="w1", queues=("billing",)),
            None,
        ]
        self._sending = 0

    async def receive(self) -> wire.WorkerMessage | None:
        return self._messages.pop(0)

    async def send(self, message: wire.SchedulerMessage) -> None:
        self._sending += 1
        assert self._sending == 1
        await self.is_free.wait()
        self._sending -= 1
        self.sent.append(message)

    async def send_runs(self, runs: Sequence[QueueRun], expires_us: int) -> None:
        raise AssertionError

    async def close(self, error: WheelschedError | None) -> None:
        assert self._sending == 0

    def cut(self) -> None:
        raise AssertionError


async def test_nothing_is_sent_while_another_message_is_being_sent(scheduler: Scheduler) -> None:
    work, tenant_id = scheduler.work, scheduler.api.tenant_id
    worker, clock = SlowWorker(), VirtualClock()
    registered = session.Session(work, tenant_id)
    stream = WorkStream(worker, registered, Reports(work), tenant_id, clock)
    serving = asyncio.create_task(stream.run())
    await clock.advance(10 * SECOND_NS)
    stream.tick()  # a keep-alive is due, and the worker has not read the welcome yet
    await clock.run_ready()
    worker.is_free.set()
    await serving
    assert [type(message) for message in worker.sent] == [wire.Welcome, wire.Alive]


async def test_a_run_id_that_is_too_long_is_refused(connector: Connector) -> None:
    """The answer has it, too, and answers wait for a worker that does not read."""
    websocket = await connector.register()
    item = {"run_id": "0" * 256, "token": 1, "ok": True}
    await send(websocket, type="outcomes", id=1, items=[item])
    assert (await receive(websocket))["type"] == "problem"
    assert await closed(websocket) == 1008
