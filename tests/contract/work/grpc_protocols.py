"""Workers that speak gRPC, with the messages of the package."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
import msgspec
from tests.contract.work.protocols import Item

from wheelsched.v1 import dispatcher_pb2 as pb
from wheelsched.values.duration import parse_duration

SERVICE = "/wheelsched.v1.SchedulerDispatcher"
TIMEOUT_S = 60

_numbers = itertools.count(1)


class Calls:
    """The methods of the service on one connection."""

    def __init__(self, address: str, token: str | None) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(address, options=options)
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    async def claim(self, timeout: float = TIMEOUT_S, **fields: Any) -> pb.ClaimTriggersResponse:  # noqa: ASYNC109
        request = pb.ClaimTriggersRequest(
            **({"worker_id": "w1", "queues": ["billing"], "claim_id": str(next(_numbers))} | fields)
        )
        kind = pb.ClaimTriggersResponse
        answer: pb.ClaimTriggersResponse = await self._unary(
            "ClaimTriggers", request, kind, timeout
        )
        return answer

    async def update(self, **fields: Any) -> pb.UpdateAttemptResponse:
        request = pb.UpdateAttemptRequest(**fields)
        kind = pb.UpdateAttemptResponse
        answer: pb.UpdateAttemptResponse = await self._unary("UpdateAttemptStatus", request, kind)
        return answer

    def work(self) -> Any:
        call = self.channel.stream_stream(
            f"{SERVICE}/Work",
            request_serializer=pb.WorkerMessage.SerializeToString,
            response_deserializer=pb.SchedulerMessage.FromString,
        )
        return call(metadata=self.metadata)

    async def close(self) -> None:
        await self.channel.close()

    async def _unary(
        self,
        method: str,
        request: Any,
        kind: Any,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> Any:
        call = self.channel.unary_unary(
            f"{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=kind.FromString,
        )
        return await call(request, metadata=self.metadata, timeout=timeout)


class GrpcPollingWorker:
    """ClaimTriggers and UpdateAttemptStatus."""

    def __init__(self, address: str, token: str, queue: str = "billing") -> None:
        self._calls = Calls(address, token)
        self._queue = queue
        self._claim_ids: dict[str, str] = {}  # by run id
        self.worker_id = f"worker-{next(_numbers)}"

    async def claim(self, max_runs: int = 1, *, wait: str = "30s") -> list[Item]:
        claim_id = str(next(_numbers))
        answer = await self._calls.claim(
            worker_id=self.worker_id,
            claim_id=claim_id,
            queues=[self._queue],
            max_tasks=max_runs,
            wait_ms=parse_duration(wait) // 1_000,
        )
        self._claim_ids |= {task.trigger_id: claim_id for task in answer.tasks}
        return [item_of(task) for task in answer.tasks]

    async def finish(self, items: Sequence[Item]) -> list[Item]:
        answers = []
        for item in items:
            answer = await self._calls.update(
                attempt_id=attempt_id(item),
                status="SUCCEEDED" if item["ok"] else "FAILED",
                **outcome_fields(item),
            )
            answers.append(outcome_of(item["run_id"], answer.success, answer.reason))
        return answers

    async def heartbeat(self, items: Sequence[Item]) -> list[Item]:
        answers = []
        for item in items:
            answer = await self._calls.update(
                attempt_id=attempt_id(item), status="RUNNING", **lease_fields(item)
            )
            held = {"held": answer.success, "cancel": answer.cancel}
            answers.append({"run_id": item["run_id"]} | held)
        return answers

    async def give_back(self, items: Sequence[Item]) -> None:
        for item in items:
            await self._calls.update(
                attempt_id=attempt_id(item),
                status="RETURNED",
                worker_id=self.worker_id,
                claim_id=self._claim_ids[item["run_id"]],
            )

    async def leave(self) -> None:
        await self._calls.close()


class GrpcStreamingWorker:
    """The stream. It gives credits when it claims."""

    def __init__(self, address: str, token: str, queue: str = "billing") -> None:
        self._calls = Calls(address, token)
        self._queue = queue
        self._stream: Any = None
        self._runs: list[Item] = []
        self.cancelled: list[str] = []
        self.worker_id = f"worker-{next(_numbers)}"

    async def claim(self, max_runs: int = 1, *, wait: str = "30s") -> list[Item]:
        await self._send(credits=pb.AddCredits(credits=max_runs))
        while not self._runs:
            await self._receive("runs")
        runs, self._runs = self._runs, []
        return runs

    async def finish(self, items: Sequence[Item]) -> list[Item]:
        sent = [
            pb.AttemptOutcome(attempt_id=attempt_id(item), ok=item["ok"], **outcome_fields(item))
            for item in items
        ]
        number = next(_numbers)
        await self._send(outcomes=pb.Outcomes(id=number, items=sent))
        answer = (await self._receive("outcomes")).outcomes
        assert answer.id == number
        return [outcome_of(one.trigger_id, one.accepted, one.reason) for one in answer.items]

    async def heartbeat(self, items: Sequence[Item]) -> list[Item]:
        sent = [
            pb.AttemptHeartbeat(attempt_id=attempt_id(item), **lease_fields(item)) for item in items
        ]
        number = next(_numbers)
        await self._send(heartbeats=pb.Heartbeats(id=number, items=sent))
        answer = (await self._receive("heartbeats")).heartbeats
        assert answer.id == number
        return [
            {"run_id": one.trigger_id, "held": one.held, "cancel": one.cancel}
            for one in answer.items
        ]

    async def give_back(self, items: Sequence[Item]) -> None:
        returned = pb.GiveBack(attempt_ids=[attempt_id(item) for item in items])
        await self._send(give_back=returned)

    async def leave(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._calls.close()

    async def _send(self, **message: Any) -> None:
        if self._stream is None:
            self._stream = self._calls.work()
            hello = pb.Hello(worker_id=self.worker_id, queues=[self._queue])
            await self._stream.write(pb.WorkerMessage(hello=hello))
            await self._receive("welcome")
        await self._stream.write(pb.WorkerMessage(**message))

    async def _receive(self, kind: str) -> pb.SchedulerMessage:
        """Reads up to a message of a kind."""
        while True:
            message = await self._stream.read()
            assert isinstance(message, pb.SchedulerMessage), await self._stream.details()
            self._runs += map(item_of, message.runs.tasks)
            self.cancelled += message.cancel.attempt_ids
            if message.WhichOneof("message") == kind:
                return message


def item_of(task: pb.TaskPayload) -> Item:
    """A run as the other protocols show it."""
    run = {
        "run_id": task.trigger_id,
        "job_id": task.job_id,
        "job_name": task.job_name,
        "queue": task.job_type,
        "scheduled_at": _instant(task.scheduled_time_ms),
        "attempt": task.attempt,
        "fencing_token": task.fencing_token,
        "idempotency_key": task.idempotency_key,
        "trigger": task.trigger,
        "timeout_ms": task.timeout_ms,
        "lease_expires_at": _instant(task.lease_expires_ms),
        "payload": msgspec.json.decode(task.payload_json),
    }
    assert task.attempt_id == attempt_id({"run_id": task.trigger_id, "token": task.fencing_token})
    assert task.scheduled_time_epoch == task.scheduled_time_ms // 1_000
    return run | ({"traceparent": task.traceparent} if task.traceparent else {})


def attempt_id(item: Item) -> str:
    return f"{item['run_id']}:{item['token']}"


def outcome_fields(item: Item) -> dict[str, Any]:
    return {
        "error_message": item.get("error", ""),
        "no_retry": not item.get("retry", True),
        "retry_after_ms": parse_duration(item.get("retry_after", "0s")) // 1_000,
        "too_early": item.get("too_early", False),
        "gone": item.get("gone", False),
    }


def lease_fields(item: Item) -> dict[str, Any]:
    return {"lease_duration_seconds": parse_duration(item.get("lease", "0s")) // 1_000_000}


def outcome_of(run_id: str, is_accepted: bool, reason: str) -> Item:
    return {"run_id": run_id, "accepted": is_accepted} | ({"reason": reason} if reason else {})


def _instant(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat()
