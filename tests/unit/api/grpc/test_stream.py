"""The stream by gRPC: what it promises beyond the contract of all protocols."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.contract.work.conftest import Scheduler
from tests.contract.work.grpc_protocols import SERVICE, Calls
from tests.unit.api.grpc.test_calls import refused
from tests.waiting import until

from wheelsched.core.outcome import Succeeded
from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.wire.stream import MAX_FRAME_BYTES

SECOND_NS = 1_000_000_000
TIMEOUT_S = 60


async def send(stream: Any, **message: Any) -> None:
    await stream.write(pb.WorkerMessage(**message))


async def receive(stream: Any) -> pb.SchedulerMessage:
    async with asyncio.timeout(TIMEOUT_S):
        message = await stream.read()
    assert isinstance(message, pb.SchedulerMessage)
    return message


async def register(calls: Calls, count: int = 10, **fields: Any) -> Any:
    stream = calls.work()
    hello: dict[str, Any] = {"worker_id": "w1", "queues": ["billing"], "credits": count} | fields
    await send(stream, hello=pb.Hello(**hello))
    assert (await receive(stream)).WhichOneof("message") == "welcome"
    return stream


async def ended(stream: Any) -> tuple[StatusCode, str]:
    """How the other side ended the stream, after all that it has sent."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while await stream.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("it ended without an error")


async def until_registered(scheduler: Scheduler) -> None:
    """The welcome reaches the worker before the scheduler knows that it was sent."""

    async def is_registered() -> bool:
        return bool(scheduler.work.subscriptions)

    await until(is_registered)


async def until_gone(scheduler: Scheduler) -> None:
    async def is_gone() -> bool:
        return not scheduler.work.subscriptions

    await until(is_gone)


async def test_the_first_message_is_answered_with_the_timing(
    scheduler: Scheduler, calls: Calls
) -> None:
    stream = calls.work()
    await send(stream, hello=pb.Hello(worker_id="w1", queues=["mail", "billing"], credits=3))
    assert (await receive(stream)).welcome == pb.Welcome(
        alive_ms=10_000, silence_ms=25_000, delivery_lease_ms=5_000
    )
    await until_registered(scheduler)
    (subscription,) = scheduler.work.subscriptions
    assert (subscription.queues, subscription.credits) == (("billing", "mail"), 3)


async def test_runs_of_one_moment_arrive_in_one_message(scheduler: Scheduler, calls: Calls) -> None:
    scheduler.add(100)
    stream = await register(calls, 100)
    assert len((await receive(stream)).runs.tasks) == 100


async def test_large_runs_are_split_into_several_messages(
    scheduler: Scheduler, calls: Calls
) -> None:
    scheduler.work.add(scheduler.api.tenant_id, count=10, payload="x" * (MAX_FRAME_BYTES // 4))
    stream = await register(calls)
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes.append(len((await receive(stream)).runs.tasks))
    assert sizes == [3, 3, 3, 1]


async def test_outcomes_may_bring_credits(scheduler: Scheduler, calls: Calls) -> None:
    first, second = scheduler.add(2)
    stream = await register(calls, 1)
    (task,) = (await receive(stream)).runs.tasks
    item = pb.AttemptOutcome(attempt_id=task.attempt_id, ok=True)
    await send(stream, outcomes=pb.Outcomes(id=7, items=[item], credits=1))
    got = [await receive(stream), await receive(stream)]
    messages = {message.WhichOneof("message"): message for message in got}
    answer = pb.OutcomeAnswer(trigger_id=first.run_id, accepted=True)
    assert messages["outcomes"].outcomes == pb.OutcomesAnswered(id=7, items=[answer])
    assert messages["runs"].runs.tasks[0].trigger_id == second.run_id
    assert first.outcome == Succeeded()


async def test_a_worker_hears_of_a_cancelled_run_at_once(
    scheduler: Scheduler, calls: Calls
) -> None:
    (added,) = scheduler.add()
    stream = await register(calls)
    (task,) = (await receive(stream)).runs.tasks
    scheduler.work.cancel(added)
    assert list((await receive(stream)).cancel.attempt_ids) == [task.attempt_id]


async def test_a_run_that_is_given_back_goes_to_another_worker(
    scheduler: Scheduler, calls: Calls
) -> None:
    (added,) = scheduler.add()
    stream = await register(calls, 1)
    (task,) = (await receive(stream)).runs.tasks
    await send(stream, give_back=pb.GiveBack(attempt_ids=[task.attempt_id, "nonsense:1"]))
    another = await register(calls, 1)
    (again,) = (await receive(another)).runs.tasks
    assert (again.trigger_id, added.given_back) == (added.run_id, 1)


async def test_after_a_stop_no_run_follows(scheduler: Scheduler, calls: Calls) -> None:
    stream = await register(calls, 5)
    await send(stream, stop=pb.Stop())
    assert (await receive(stream)).WhichOneof("message") == "stopped"
    assert scheduler.work.subscriptions == []
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is StatusCode.OK


async def test_heartbeats_have_the_lease_of_the_stream(scheduler: Scheduler, calls: Calls) -> None:
    scheduler.add()
    stream = await register(calls, lease_duration_seconds=40)
    (task,) = (await receive(stream)).runs.tasks
    beat = pb.AttemptHeartbeat(attempt_id=task.attempt_id)
    await send(stream, heartbeats=pb.Heartbeats(id=3, items=[beat]))
    answer = pb.HeartbeatAnswer(trigger_id=task.trigger_id, held=True)
    assert (await receive(stream)).heartbeats == pb.HeartbeatsAnswered(id=3, items=[answer])
    assert scheduler.work.leases == [40_000_000]


async def test_an_idle_stream_gets_a_sign_of_life(scheduler: Scheduler, calls: Calls) -> None:
    stream = await register(calls)
    await until_registered(scheduler)
    await scheduler.api.clock.advance(11 * SECOND_NS)
    assert (await receive(stream)).WhichOneof("message") == "alive"


async def test_a_silent_worker_loses_its_stream_and_its_credits(
    scheduler: Scheduler, calls: Calls
) -> None:
    stream = await register(calls)
    await until_registered(scheduler)
    await scheduler.api.clock.advance(30 * SECOND_NS)
    assert await ended(stream) == (
        StatusCode.UNAVAILABLE,
        "the worker was silent for too long; reconnect",
    )
    await until_gone(scheduler)
    assert scheduler.api.vitals.waiting == 0


async def test_a_worker_that_does_not_react_to_runs_loses_its_stream_after_the_delivery_lease(
    scheduler: Scheduler, calls: Calls
) -> None:
    stream = await register(calls, 100)
    scheduler.add()
    await receive(stream)
    await scheduler.api.clock.advance(7 * SECOND_NS)
    assert (await ended(stream))[0] is StatusCode.UNAVAILABLE
    await until_gone(scheduler)


async def test_a_worker_that_does_not_read_delays_no_other(
    scheduler: Scheduler, calls: Calls
) -> None:
    """What is written to it waits for room; it loses its stream like one that is silent."""
    await register(calls, 100)
    await until_registered(scheduler)
    scheduler.work.add(scheduler.api.tenant_id, count=100, payload="x" * 250_000)
    await scheduler.api.clock.advance(30 * SECOND_NS)
    await until_gone(scheduler)
    another = Calls(scheduler.api.grpc, scheduler.api.token)
    await another.claim()
    await another.close()


async def test_a_worker_that_ends_its_call_gives_its_credits_back(
    scheduler: Scheduler, calls: Calls
) -> None:
    stream = await register(calls)
    stream.cancel()
    await until_gone(scheduler)


async def test_a_revoked_token_ends_the_stream(scheduler: Scheduler) -> None:
    api = scheduler.api
    await api.add_token("wst_worker", api.tenant_id, "work")
    calls = Calls(api.grpc, "wst_worker")
    stream = await register(calls)
    await until_registered(scheduler)
    tokens = (await api.get("/tokens")).body["items"]
    (token_id,) = [each["token_id"] for each in tokens if each["name"] == "wst_worker"]
    assert (await api.call("DELETE", f"/tokens/{token_id}")).status == 200
    ending = asyncio.create_task(ended(stream))
    await api.clock.advance(5 * SECOND_NS)
    assert await ending == (StatusCode.UNAUTHENTICATED, "unknown or revoked token")
    await calls.close()


@pytest.mark.parametrize(
    ("message", "details"),
    [
        ({"credits": pb.AddCredits(credits=1)}, "type: the first message, and no other"),
        ({"hello": pb.Hello(queues=["a"])}, "hello.worker_id: expected 1 to 255 characters"),
        ({"hello": pb.Hello(worker_id="w")}, "hello.queues: expected 1 to 100 names"),
        ({"hello": pb.Hello(worker_id="w", queues=["no name"])}, "hello.queues[0]: 'no name'"),
        (
            {"hello": pb.Hello(worker_id="w", queues=["a"], credits=100_001)},
            "credits: 100,001 is not between 0 and 100,000",
        ),
        (
            {"hello": pb.Hello(worker_id="w", queues=["a"], lease_duration_seconds=1)},
            "hello.lease_duration_seconds: a lease must be from 5s to 30d",
        ),
        ({}, "message: expected one of hello, credits, outcomes"),
    ],
)
async def test_an_invalid_message_ends_the_stream_with_the_field(
    calls: Calls, message: dict[str, Any], details: str
) -> None:
    stream = calls.work()
    await send(stream, **message)
    code, said = await ended(stream)
    assert code is StatusCode.INVALID_ARGUMENT
    assert said.startswith(details)


@pytest.mark.parametrize(
    ("message", "details"),
    [
        ({"hello": pb.Hello(worker_id="w", queues=["a"])}, "type: the first message"),
        ({"credits": pb.AddCredits(credits=99_991)}, "credits: a worker may have at most 100,000"),
        ({"credits": pb.AddCredits(credits=-1)}, "credits: -1 is not between 0 and 100,000"),
        (
            {"outcomes": pb.Outcomes(items=[pb.AttemptOutcome()])},
            "outcomes.items[0].attempt_id: '' is not a valid attempt id",
        ),
        (
            {"heartbeats": pb.Heartbeats(items=[pb.AttemptHeartbeat()] * 1_001)},
            "heartbeats.items: expected at most 1,000 items, got 1,001",
        ),
        ({"give_back": pb.GiveBack(attempt_ids=["x"])}, "give_back.attempt_ids[0]: 'x' is not"),
    ],
)
async def test_an_invalid_message_later_ends_the_stream_too(
    scheduler: Scheduler, calls: Calls, message: dict[str, Any], details: str
) -> None:
    stream = await register(calls)
    await send(stream, **message)
    code, said = await ended(stream)
    assert code is StatusCode.INVALID_ARGUMENT
    assert said.startswith(details)
    await until_gone(scheduler)


async def test_an_invalid_message_ends_the_stream(calls: Calls) -> None:
    call: Any = calls.channel.stream_stream(f"{SERVICE}/Work")(metadata=calls.metadata)
    await call.write(b"\xff\xff\xff")
    error = await refused(call.read())
    assert error.code() is StatusCode.INVALID_ARGUMENT
    assert error.details() == "expected a message of type wheelsched.v1.WorkerMessage"


async def test_a_stopping_process_tells_its_workers_to_go_elsewhere(
    scheduler: Scheduler, calls: Calls
) -> None:
    """A worker may still report what it has finished."""
    (added,) = scheduler.add()
    stream = await register(calls)
    (task,) = (await receive(stream)).runs.tasks
    stopping = asyncio.create_task(scheduler.api.stop())
    assert (await receive(stream)).goodbye.reason.startswith("the API process is stopping")
    assert scheduler.work.subscriptions == []
    item = pb.AttemptOutcome(attempt_id=task.attempt_id, ok=True)
    await send(stream, outcomes=pb.Outcomes(id=1, items=[item], credits=1))
    assert (await receive(stream)).outcomes.items[0].accepted
    assert added.outcome == Succeeded()
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    await stopping


async def test_a_stopping_process_answers_its_claims(scheduler: Scheduler, calls: Calls) -> None:
    claiming = asyncio.create_task(calls.claim(wait_ms=60_000))
    await until_registered(scheduler)
    await scheduler.api.stop()
    assert list((await claiming).tasks) == []
    assert (await refused(calls.claim(timeout=20))).code() is StatusCode.UNAVAILABLE
