"""Unary calls by gRPC: what they promise beyond the contract of all protocols."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.contract.work.conftest import Scheduler
from tests.contract.work.grpc_protocols import SERVICE, Calls
from tests.waiting import until

from wheelsched.api.grpc.dispatcher import wanted_of
from wheelsched.core.outcome import Failed, Succeeded
from wheelsched.v1 import dispatcher_pb2 as pb

SECOND_US = 1_000_000


async def refused(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


async def test_a_claim_has_all_fields_of_a_run(scheduler: Scheduler, calls: Calls) -> None:
    (added,) = scheduler.add()
    (task,) = (await calls.claim()).tasks
    assert (task.trigger_id, task.job_type) == (added.run_id, "billing")
    assert task.tenant_id == str(scheduler.api.tenant_id)
    assert task.attempt_id == f"{added.run_id}:{added.token}"
    assert task.payload_json == '{"number":0}'
    assert task.scheduled_time_ms == added.key.due_us // 1_000
    assert task.scheduled_time_epoch == added.key.due_us // SECOND_US


async def test_a_claim_takes_runs_of_all_its_queues(scheduler: Scheduler, calls: Calls) -> None:
    scheduler.add(2)
    scheduler.add(2, queue="mail")
    scheduler.add(2, queue="other")
    answer = await calls.claim(queues=["mail", "billing"], max_tasks=10)
    assert sorted(task.job_type for task in answer.tasks) == ["billing", "billing", "mail", "mail"]


async def test_the_same_claim_gets_the_same_runs_again(scheduler: Scheduler, calls: Calls) -> None:
    scheduler.add(9)
    first = await calls.claim(max_tasks=5, claim_id="c1")
    again = await calls.claim(max_tasks=5, claim_id="c1")
    assert again == first
    assert len(first.tasks) == 5
    over_http = await scheduler.api.post(
        "/queues/billing/claim", {"worker_id": "w1", "claim_id": "c1", "max_runs": 5}
    )
    assert [run["run_id"] for run in over_http.body["runs"]] == [
        task.trigger_id for task in first.tasks
    ]


async def test_a_run_is_given_back_once_and_only_by_its_claim(
    scheduler: Scheduler, calls: Calls
) -> None:
    """It keeps its token, so a call that is sent again must not take it from its next worker."""
    (added,) = scheduler.add()
    (task,) = (await calls.claim(claim_id="c1")).tasks
    returned = {"attempt_id": task.attempt_id, "status": "RETURNED", "worker_id": "w1"}
    assert not (await calls.update(**returned, claim_id="c2")).success
    assert (await calls.update(**returned, claim_id="c1")).success
    await calls.claim(claim_id="c3", worker_id="w2")
    again = await calls.update(**returned, claim_id="c1")
    assert (again.success, added.given_back) == (False, 1)
    assert again.reason.startswith("the run does not belong to this claim")


async def test_a_claim_without_an_id_is_a_new_one(scheduler: Scheduler, calls: Calls) -> None:
    scheduler.add(2)
    runs = [(await calls.claim(claim_id="")).tasks[0].trigger_id for _ in range(2)]
    assert len(set(runs)) == 2


async def test_a_claim_is_answered_at_once_or_within_its_wait(calls: Calls) -> None:
    assert list((await calls.claim()).tasks) == []
    assert list((await calls.claim(wait_ms=50)).tasks) == []


def test_a_claim_is_answered_before_its_client_gives_up() -> None:
    """Otherwise the answer may be lost, and its runs wait for the end of their delivery lease."""
    request = pb.ClaimTriggersRequest(wait_ms=60_000)
    assert wanted_of(request, remaining_s=None).wait_us == 60 * SECOND_US
    assert wanted_of(request, remaining_s=5).wait_us == 4_500_000


async def test_a_claim_stays_below_the_message_size_of_its_client(
    scheduler: Scheduler, calls: Calls
) -> None:
    """A client accepts 4 MiB unless it is configured otherwise."""
    scheduler.work.add(scheduler.api.tenant_id, count=60, payload="x" * 200_000)
    seen: list[str] = []
    while len(seen) < 60:
        tasks = (await calls.claim(max_tasks=1_000)).tasks
        assert tasks
        seen += [task.trigger_id for task in tasks]
    assert len(set(seen)) == 60


async def test_an_abandoned_claim_gives_its_credits_back(
    scheduler: Scheduler, calls: Calls
) -> None:
    claiming = asyncio.create_task(calls.claim(wait_ms=60_000))

    async def is_waiting() -> bool:
        return bool(scheduler.work.subscriptions)

    async def is_gone() -> bool:
        return not scheduler.work.subscriptions

    await until(is_waiting)
    claiming.cancel()
    await until(is_gone)


async def test_heartbeats_have_the_lease_of_the_claim(scheduler: Scheduler, calls: Calls) -> None:
    scheduler.add()
    (task,) = (await calls.claim(lease_duration_seconds=40)).tasks
    assert (await calls.update(attempt_id=task.attempt_id, status="RUNNING")).success
    assert scheduler.work.leases == [40 * SECOND_US]
    own = {"status": "RUNNING", "lease_duration_seconds": 50}
    assert (await calls.update(attempt_id=task.attempt_id, **own)).success
    assert scheduler.work.leases == [40 * SECOND_US, 50 * SECOND_US]


async def test_an_update_names_its_run_if_it_likes(scheduler: Scheduler, calls: Calls) -> None:
    first, second = scheduler.add(2)
    tasks = (await calls.claim(max_tasks=2)).tasks
    for task, status in zip(tasks, ("SUCCEEDED", "FAILED"), strict=True):
        answer = await calls.update(
            attempt_id=task.attempt_id,
            trigger_id=task.trigger_id,
            status=status,
            error_message="no paper",
        )
        assert answer.success
    assert [first.outcome, second.outcome] == [Succeeded(), Failed(error="no paper")]


async def test_a_stale_attempt_is_told_why(scheduler: Scheduler, calls: Calls) -> None:
    (added,) = scheduler.add()
    (task,) = (await calls.claim()).tasks
    scheduler.pass_time(6 * SECOND_US)
    for status, reason in (
        ("SUCCEEDED", "stale fencing token"),
        ("RUNNING", "the run has ended or has a newer attempt"),
    ):
        answer = await calls.update(attempt_id=task.attempt_id, status=status)
        assert (answer.success, answer.reason) == (False, reason)
    assert added.outcome is None


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({"worker_id": ""}, "worker_id: expected 1 to 255 characters"),
        ({"claim_id": "c" * 256}, "claim_id: expected 1 to 255 characters"),
        ({"queues": []}, "queues: expected 1 to 100 names of queues, got 0"),
        ({"queues": ["a"] * 101}, "queues: expected 1 to 100 names of queues, got 101"),
        ({"queues": ["a", "no name"]}, "queues[1]: 'no name' is not a valid name of a queue"),
        ({"max_tasks": 1_001}, "max_tasks: 1,001 is not between 1 and 1,000"),
        ({"max_tasks": -1}, "max_tasks: -1 is not between 1 and 1,000"),
        ({"lease_duration_seconds": 4}, "lease_duration_seconds: a lease must be from 5s to 30d"),
        ({"lease_duration_seconds": -9}, "lease_duration_seconds: a lease must be from 5s to 30d"),
        ({"lease_duration_seconds": 2**62}, "lease_duration_seconds: "),
        ({"wait_ms": 60_001}, "wait_ms: 60,001 is not between 0 and 60,000"),
        ({"wait_ms": -1}, "wait_ms: -1 is not between 0 and 60,000"),
    ],
)
async def test_an_invalid_claim_is_refused_with_the_field(
    calls: Calls, fields: dict[str, Any], details: str
) -> None:
    error = await refused(calls.claim(**fields))
    assert error.code() is StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith(details)


RUN_ID = f"{'0' * 32}-1"


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({"status": "DONE"}, "status: 'DONE' is not valid; expected SUCCEEDED, FAILED, RUNNING or"),
        ({"status": "RETURNED", "claim_id": "c1"}, "worker_id: expected 1 to 255 characters"),
        ({"status": "RETURNED", "worker_id": "w1"}, "claim_id: expected 1 to 255 characters"),
        ({"attempt_id": ""}, "attempt_id: '' is not a valid attempt id"),
        ({"attempt_id": RUN_ID}, f"attempt_id: '{RUN_ID}' is not a valid attempt id"),
        ({"attempt_id": f"{RUN_ID}:-1"}, "attempt_id: "),
        ({"attempt_id": f"{RUN_ID}:{2**63}"}, "attempt_id: "),
        ({"attempt_id": f"{RUN_ID}:{'9' * 5_000}"}, "attempt_id: "),
        ({"attempt_id": f"{RUN_ID}:{'0' * 20}{'9' * 20}"}, "attempt_id: "),
        ({"attempt_id": f"{RUN_ID}:{'0' * 5_000}1"}, "attempt_id: "),
        ({"attempt_id": f"{'0' * 256}:1"}, "attempt_id: "),
        ({"attempt_id": f"{RUN_ID}:١"}, "attempt_id: "),
        ({"trigger_id": "another"}, "trigger_id: 'another' is not the run of this attempt"),
        ({"status": "FAILED", "retry_after_ms": -1}, "retry_after_ms: must not be negative"),
        ({"status": "RUNNING", "lease_duration_seconds": 1}, "lease_duration_seconds: a lease"),
    ],
)
async def test_an_invalid_update_is_refused_with_the_field(
    calls: Calls, fields: dict[str, Any], details: str
) -> None:
    sent = {"attempt_id": f"{RUN_ID}:1", "status": "SUCCEEDED"} | fields
    error = await refused(calls.update(**sent))
    assert error.code() is StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith(details)


async def test_an_invalid_message_is_refused(calls: Calls) -> None:
    call: Any = calls.channel.unary_unary(f"{SERVICE}/ClaimTriggers")
    error = await refused(call(b"\xff\xff\xff", metadata=calls.metadata))
    assert error.code() is StatusCode.INVALID_ARGUMENT
    assert error.details() == "expected a message of type wheelsched.v1.ClaimTriggersRequest"


async def test_a_message_that_is_too_large_is_refused(calls: Calls) -> None:
    error = await refused(calls.update(error_message="x" * (5 << 20)))
    assert error.code() is StatusCode.RESOURCE_EXHAUSTED
