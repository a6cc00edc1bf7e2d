"""The messages of the stream as protobuf.

Invariant: each message says what the JSON message of the same name does, so both have one
implementation.
"""

from collections.abc import Sequence, Sized
from typing import assert_never

from wheelsched.api.grpc.requests import (
    check_label,
    check_range,
    parse,
    read_attempt_id,
    read_queue_names,
    read_retry_after,
    read_seconds,
)
from wheelsched.errors import InvalidField
from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.wire import stream as wire
from wheelsched.wire.queue import (
    MAX_CREDITS,
    MAX_ITEMS,
    HeartbeatAnswer,
    HeartbeatItem,
    OutcomeAnswer,
    OutcomeItem,
    ReturnedItem,
)


def read_message(data: bytes) -> wire.WorkerMessage:
    """A message of a worker, or `InvalidField`."""
    message = parse(pb.WorkerMessage.FromString, data, "WorkerMessage")
    match message.WhichOneof("message"):
        case "hello":
            return _read_hello(message.hello)
        case "credits":
            return wire.AddCredits(credits=_read_credits(message.credits.credits))
        case "outcomes":
            return _read_outcomes(message.outcomes)
        case "heartbeats":
            return _read_heartbeats(message.heartbeats)
        case "give_back":
            return wire.GiveBack(items=_read_returned(message.give_back.attempt_ids))
        case "stop":
            return wire.Stop()
        case "alive":
            return wire.Alive()
        case _:
            raise InvalidField(
                "expected one of hello, credits, outcomes, heartbeats, give_back, stop, alive",
                pointer="message",
            )


def write_message(message: wire.SchedulerMessage) -> pb.SchedulerMessage:
    """A message to a worker."""
    match message:
        case wire.Welcome():
            return pb.SchedulerMessage(
                welcome=pb.Welcome(
                    alive_ms=message.alive_ms,
                    silence_ms=message.silence_ms,
                    delivery_lease_ms=message.delivery_lease_ms,
                )
            )
        case wire.OutcomesAnswered():
            answers = pb.OutcomesAnswered(id=message.id, items=map(_outcome, message.items))
            return pb.SchedulerMessage(outcomes=answers)
        case wire.HeartbeatsAnswered():
            held = pb.HeartbeatsAnswered(id=message.id, items=map(_heartbeat, message.items))
            return pb.SchedulerMessage(heartbeats=held)
        case wire.Cancel():
            ids = [f"{item.run_id}:{item.token}" for item in message.items]
            return pb.SchedulerMessage(cancel=pb.Cancel(attempt_ids=ids))
        case wire.Stopped():
            return pb.SchedulerMessage(stopped=pb.Stopped())
        case wire.Goodbye():
            return pb.SchedulerMessage(goodbye=pb.Goodbye(reason=message.reason))
        case wire.Alive():
            return pb.SchedulerMessage(alive=pb.Alive())
        case wire.Runs() | wire.Refused():
            raise AssertionError(f"{type(message).__name__} is encoded elsewhere for gRPC")
        case never:
            assert_never(never)


def _read_hello(hello: pb.Hello) -> wire.Hello:
    return wire.Hello(
        worker_id=check_label(hello.worker_id, field="hello.worker_id"),
        queues=read_queue_names(hello.queues, field="hello.queues"),
        credits=_read_credits(hello.credits),
        lease=read_seconds(hello.lease_duration_seconds, field="hello.lease_duration_seconds"),
    )


def _read_outcomes(outcomes: pb.Outcomes) -> wire.Outcomes:
    _check_count(outcomes.items, field="outcomes.items")
    items = [_read_outcome(index, item) for index, item in enumerate(outcomes.items)]
    return wire.Outcomes(id=outcomes.id, items=items, credits=_read_credits(outcomes.credits))


def _read_outcome(index: int, item: pb.AttemptOutcome) -> OutcomeItem:
    field = f"outcomes.items[{index}]"
    run_id, token = read_attempt_id(item.attempt_id, field=f"{field}.attempt_id")
    return OutcomeItem(
        run_id=run_id,
        token=token,
        ok=item.ok,
        error=item.error_message,
        retry=not item.no_retry,
        retry_after=read_retry_after(item.retry_after_ms, field=f"{field}.retry_after_ms"),
        too_early=item.too_early,
        gone=item.gone,
    )


def _read_heartbeats(heartbeats: pb.Heartbeats) -> wire.Heartbeats:
    _check_count(heartbeats.items, field="heartbeats.items")
    items = [_read_heartbeat(index, item) for index, item in enumerate(heartbeats.items)]
    return wire.Heartbeats(id=heartbeats.id, items=items)


def _read_heartbeat(index: int, item: pb.AttemptHeartbeat) -> HeartbeatItem:
    field = f"heartbeats.items[{index}]"
    run_id, token = read_attempt_id(item.attempt_id, field=f"{field}.attempt_id")
    seconds = item.lease_duration_seconds
    lease = read_seconds(seconds, field=f"{field}.lease_duration_seconds")
    return HeartbeatItem(run_id=run_id, token=token, lease=lease)


def _read_returned(attempt_ids: Sequence[str]) -> list[ReturnedItem]:
    _check_count(attempt_ids, field="give_back.attempt_ids")
    found = [
        read_attempt_id(each, field=f"give_back.attempt_ids[{index}]")
        for index, each in enumerate(attempt_ids)
    ]
    return [ReturnedItem(run_id=run_id, token=token) for run_id, token in found]


def _read_credits(count: int) -> int:
    return check_range(count, 0, MAX_CREDITS, field="credits")


def _check_count(items: Sized, *, field: str) -> None:
    if len(items) > MAX_ITEMS:
        raise InvalidField(
            f"expected at most {MAX_ITEMS:,} items, got {len(items):,}", pointer=field
        )


def _outcome(answer: OutcomeAnswer) -> pb.OutcomeAnswer:
    return pb.OutcomeAnswer(
        trigger_id=answer.run_id, accepted=answer.accepted, reason=answer.reason or ""
    )


def _heartbeat(answer: HeartbeatAnswer) -> pb.HeartbeatAnswer:
    return pb.HeartbeatAnswer(trigger_id=answer.run_id, held=answer.held, cancel=answer.cancel)
