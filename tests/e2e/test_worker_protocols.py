"""The protocols of workers that pull, on the whole stack: what a repeated or late report gets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.contract.work.protocols import PollingWorker, StreamingWorker, WorkerSide
from tests.e2e.processes import eventually
from tests.stack import RunningStack

pytestmark = pytest.mark.proof  # the stack

PROTOCOLS: dict[str, Callable[[str, str, str], WorkerSide]] = {
    "poll": PollingWorker,
    "stream": StreamingWorker,
}


@pytest.fixture(scope="module")
def token(stack: RunningStack) -> str:
    text: str = stack.read("token", "create", "worker", "--scope", "work")["token"]
    return text


@pytest.fixture(params=list(PROTOCOLS))
async def worker(
    stack: RunningStack, token: str, request: pytest.FixtureRequest
) -> AsyncIterator[WorkerSide]:
    made = PROTOCOLS[request.param](stack.url, token, queue_of(request))
    yield made
    await made.leave()


def queue_of(request: pytest.FixtureRequest) -> str:
    """A queue for each test."""
    name: str = request.node.name
    return name.replace("[", "-").rstrip("]")[-90:].lstrip("_-")


def create(stack: RunningStack, request: pytest.FixtureRequest, *options: str) -> str:
    """The name of a new job of the queue of this test, which runs once."""
    name = queue_of(request)
    stack.run("job", "create", name, "--schedule", "in 1s", "--queue", name, *options)
    return name


def state_of(stack: RunningStack, run: dict[str, Any]) -> str:
    state: str = stack.read("run", "get", run["run_id"])["state"]
    return state


def report(run: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"run_id": run["run_id"], "token": run["fencing_token"], **fields}


async def test_an_outcome_may_be_sent_again(
    stack: RunningStack, worker: WorkerSide, request: pytest.FixtureRequest
) -> None:
    name = create(stack, request, "--payload", '{"customer": 7}')
    (run,) = await worker.claim(5)
    assert (run["job_name"], run["queue"], run["payload"]) == (name, name, {"customer": 7})
    assert (run["attempt"], run["trigger"], run["timeout_ms"]) == (1, "schedule", 120_000)
    for _ in range(3):
        (answer,) = await worker.finish([report(run, ok=True)])
        assert answer == {"run_id": run["run_id"], "accepted": True}
    assert state_of(stack, run) == "succeeded"


async def test_a_failed_run_comes_again_with_another_token(
    stack: RunningStack, worker: WorkerSide, request: pytest.FixtureRequest
) -> None:
    create(stack, request)
    (first,) = await worker.claim()
    (answer,) = await worker.finish([report(first, ok=False, error="no paper")])
    assert answer["accepted"] is True
    (second,) = await worker.claim()
    assert (second["run_id"], second["attempt"]) == (first["run_id"], 2)
    assert second["fencing_token"] > first["fencing_token"]
    assert second["idempotency_key"] == first["idempotency_key"]
    (late,) = await worker.finish([report(first, ok=True)])
    assert late["accepted"] is False
    assert late["reason"]
    (held,) = await worker.heartbeat([report(first)])
    assert held["held"] is False
    (answer,) = await worker.finish([report(second, ok=False, error="no customer", retry=False)])
    assert answer["accepted"] is True
    assert state_of(stack, second) == "dead"


async def test_a_heartbeat_keeps_a_run_beyond_the_delivery_lease(
    stack: RunningStack, worker: WorkerSide, request: pytest.FixtureRequest
) -> None:
    create(stack, request)
    (run,) = await worker.claim()
    (held,) = await worker.heartbeat([report(run, lease="10m")])
    assert held == {"run_id": run["run_id"], "held": True, "cancel": False}
    await asyncio.sleep(8)  # longer than the delivery lease, however slow the machine is
    (held,) = await worker.heartbeat([report(run)])
    assert held["held"] is True
    (answer,) = await worker.finish([report(run, ok=True)])
    assert answer["accepted"] is True
    assert stack.read("run", "get", run["run_id"])["attempt"] == 1


async def test_a_run_without_a_sign_of_life_is_handed_out_again(
    stack: RunningStack, worker: WorkerSide, request: pytest.FixtureRequest
) -> None:
    create(stack, request)
    (first,) = await worker.claim()
    (second,) = await worker.claim(wait="60s")
    assert (second["run_id"], second["attempt"]) == (first["run_id"], 2)
    (answer,) = await worker.finish([report(second, ok=True)])
    assert answer["accepted"] is True


async def test_a_cancelled_run_is_told(
    stack: RunningStack, worker: WorkerSide, request: pytest.FixtureRequest
) -> None:
    create(stack, request)
    (run,) = await worker.claim()
    await worker.heartbeat([report(run, lease="10m")])
    stack.run("run", "cancel", run["run_id"])
    (answer,) = await worker.heartbeat([report(run)])
    assert answer["cancel"] or not answer["held"]
    eventually(lambda: state_of(stack, run) == "cancelled")
