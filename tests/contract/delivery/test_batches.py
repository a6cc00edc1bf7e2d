"""Several runs of one target in one request."""

import asyncio
import json
from collections.abc import Callable

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook
from tests.contract.delivery.conftest import SECRET, World
from tests.workers import Received, Worker

from wheelsched.core.model import RunKey, format_run_id
from wheelsched.core.outcome import Accepted, Failed, Gone, Rejected, Succeeded


def answering(worker: Worker, answer: Callable[[list[str]], object], status: int = 200) -> None:
    """Let the worker answer what `answer` makes of the run ids that it got."""

    async def answer_batch(received: Received) -> web.Response:
        run_ids = [element["run_id"] for element in json.loads(received.body)]
        return web.json_response(answer(run_ids), status=status)

    worker.answer = answer_batch


def all_ok(run_ids: list[str]) -> object:
    return [{"run_id": run_id, "ok": True} for run_id in run_ids]


async def test_a_batch_is_one_request_with_an_array(world: World, worker: Worker) -> None:
    answering(worker, all_ok)
    outcomes = await world.send_batch(worker.url, 3)
    assert outcomes == [Succeeded(http_status=200)] * 3
    (received,) = worker.received
    assert json.loads(received.body)[2] == {
        "run_id": format_run_id(RunKey(world.job_id, 1_794_837_600_002_000)),
        "job_id": str(world.job_id),
        "job_name": "weekly-report",
        "scheduled_at": "2026-11-16T14:00:00.002000Z",
        "attempt": 1,
        "fencing_token": (7 << 32) + 2,
        "idempotency_key": f"{world.job_id}:2",
        "trigger": "schedule",
        "timeout_ms": 60_000,
        "payload": {"report": "weekly"},
    }
    assert b'"payload":{"report" : "weekly"}' in received.body
    assert received.headers["Content-Type"] == "application/json"
    assert "wheelsched-run-id" not in received.headers
    assert world.begun == 1


async def test_a_batch_is_signed_as_a_whole(world: World, worker: Worker) -> None:
    answering(worker, all_ok)
    await world.send_batch(worker.url, 3)
    (received,) = worker.received
    assert len(Webhook(SECRET).verify(received.body, dict(received.headers))) == 3
    assert received.headers["webhook-id"] == received.headers["Idempotency-Key"]
    assert len(received.headers["traceparent"]) == 55


async def test_a_batch_of_one_is_an_array_too(world: World, worker: Worker) -> None:
    answering(worker, all_ok)
    assert await world.send_batch(worker.url, 1) == [Succeeded(http_status=200)]
    assert len(json.loads(worker.received[0].body)) == 1


async def test_the_same_set_has_the_same_key_on_every_attempt(world: World, worker: Worker) -> None:
    answering(worker, all_ok)
    await world.send_batch(worker.url, 3, attempt=1)
    await world.send_batch(worker.url, 3, attempt=2, token=(8 << 32))
    await world.send_batch(worker.url, 2)
    first, again, other = (received.headers["Idempotency-Key"] for received in worker.received)
    assert first == again != other


async def test_answers_are_matched_by_run_id(world: World, worker: Worker) -> None:
    def answer(run_ids: list[str]) -> object:
        first, second, third, _ = run_ids
        return [
            {"run_id": "of somebody else", "ok": True},
            {"run_id": third, "ok": False, "error": "no such report", "retry": False},
            {"run_id": second, "ok": False, "error": "no paper"},
            {"run_id": first, "ok": True},
        ]

    answering(worker, answer)
    assert await world.send_batch(worker.url, 4) == [
        Succeeded(http_status=200),
        Failed(error="no paper", http_status=200),
        Rejected(error="no such report", http_status=200),
        Failed(error="the worker's response does not contain this run", http_status=200),
    ]


@pytest.mark.parametrize(
    "body", ["", "ok", "{}", "null", '[{"run_id":', '{"run_id":"a","ok":true}']
)
async def test_an_answer_other_than_an_array_fails_every_run(
    world: World, worker: Worker, body: str
) -> None:
    worker.answers(200, body)
    outcomes = await world.send_batch(worker.url, 2)
    error = "the worker's response is not an array of {run_id, ok}"
    assert outcomes == [Failed(error=error, http_status=200)] * 2


async def test_204_names_no_run(world: World, worker: Worker) -> None:
    worker.answers(204)
    outcomes = await world.send_batch(worker.url, 2)
    assert all(isinstance(outcome, Failed) for outcome in outcomes)


async def test_an_answer_that_is_too_long_fails_every_run(world: World, worker: Worker) -> None:
    answering(worker, lambda run_ids: [{"run_id": run_ids[0], "ok": True, "error": "x" * 100_000}])
    outcomes = await world.send_batch(worker.url, 2)
    error = "the worker's response is too long"
    assert outcomes == [Failed(error=error, http_status=200)] * 2


async def test_the_answer_to_a_large_batch_is_read(world: World, worker: Worker) -> None:
    answering(worker, all_ok)
    outcomes = await world.send_batch(worker.url, 2_000)
    assert outcomes == [Succeeded(http_status=200)] * 2_000


async def test_202_accepts_every_run(world: World, worker: Worker) -> None:
    worker.answers(202)
    assert await world.send_batch(worker.url, 3) == [Accepted()] * 3


async def test_any_other_status_is_that_of_every_run(world: World, worker: Worker) -> None:
    worker.answers(503, "closed", Retry_After="3")
    (outcome,) = set(await world.send_batch(worker.url, 3))
    assert outcome == Failed(
        error="the worker responded with 503 Service Unavailable: closed",
        http_status=503,
        retry_after_us=3_000_000,
    )
    worker.answers(410)
    assert all(isinstance(outcome, Gone) for outcome in await world.send_batch(worker.url, 3))
    worker.answers(404)
    assert all(isinstance(outcome, Rejected) for outcome in await world.send_batch(worker.url, 3))


async def test_a_batch_has_the_longest_of_its_timeouts(world: World, worker: Worker) -> None:
    answering(worker, all_ok)
    route, (patient,) = world.prepare_batch(worker.url, 1)
    hurried = world.dispatcher.prepare(route, world.callback(1, timeout_us=1))
    outcomes = await world.dispatcher.send(route, [hurried, patient], world.begin)
    assert outcomes == [Succeeded(http_status=200)] * 2


async def test_a_worker_that_hangs_fails_every_run(world: World, worker: Worker) -> None:
    async def answer(received: Received) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    worker.answer = answer
    outcomes = await world.send_batch(worker.url, 2, timeout_us=50_000)
    assert outcomes == [Failed(error="the worker did not respond before the timeout")] * 2
