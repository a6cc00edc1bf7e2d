"""A worker of somebody else by gRPC, in its own process, with stubs generated from the file.

A worker that is held up for longer than the delivery lease loses its run, and gets it again.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.test_pulling_workers import create, ends_as
from tests.ports import reserved_port
from tests.stack import GENEROUS_S, RunningStack, clean_environment, running_stack

import wheelsched

pytestmark = pytest.mark.proof  # the stack, and workers

PROTO = Path(wheelsched.__file__).parent / "v1/dispatcher.proto"

POLLING = """
import json, sys, uuid
import grpc, dispatcher_pb2 as pb, dispatcher_pb2_grpc as rpc

assert "wheelsched" not in sys.modules
stub = rpc.SchedulerDispatcherStub(grpc.insecure_channel(sys.argv[1]))


def claim():
    while True:
        request = pb.ClaimTriggersRequest(
            worker_id="stranger", max_tasks=5, lease_duration_seconds=600,
            queues=["billing", "mail"], claim_id=str(uuid.uuid4()), wait_ms=20_000,
        )
        for task in stub.ClaimTriggers(request, timeout=120, wait_for_ready=True).tasks:
            return task


def update(**fields):
    request = pb.UpdateAttemptRequest(attempt_id=task.attempt_id, **fields)
    return stub.UpdateAttemptStatus(request, timeout=120).success


task = claim()
while not update(status="RUNNING"):
    task = claim()
for _ in range(2):
    assert update(status="SUCCEEDED", trigger_id=task.trigger_id)
assert not update(status="FAILED", error_message="late")
print(json.dumps([task.trigger_id, task.job_type, task.payload_json, task.attempt]))
"""

STREAMING = """
import json, queue, sys
import grpc, dispatcher_pb2 as pb, dispatcher_pb2_grpc as rpc

sending = queue.SimpleQueue()
sending.put(pb.WorkerMessage(hello=pb.Hello(worker_id="stranger", queues=["streams"], credits=2)))
channel = grpc.insecure_channel(sys.argv[1])
answers = rpc.SchedulerDispatcherStub(channel).Work(iter(sending.get, None), wait_for_ready=True)
payloads, done = {}, set()
for answer in answers:
    kind = answer.WhichOneof("message")
    if kind == "runs":
        for task in answer.runs.tasks:
            payloads[task.trigger_id] = task.payload_json
            outcome = pb.AttemptOutcome(attempt_id=task.attempt_id, ok=True)
            sending.put(pb.WorkerMessage(outcomes=pb.Outcomes(id=1, items=[outcome], credits=1)))
    elif kind == "outcomes":
        done |= {item.trigger_id for item in answer.outcomes.items if item.accepted}
        if len(done) == 2:
            sending.put(pb.WorkerMessage(stop=pb.Stop()))
    elif kind == "alive":
        sending.put(pb.WorkerMessage(alive=pb.Alive()))
    elif kind == "stopped":
        sending.put(None)
assert answers.code() is grpc.StatusCode.OK
print(json.dumps(sorted(payloads[run_id] for run_id in done)))
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    with reserved_port() as port, running_stack("--grpc", f"127.0.0.1:{port}") as running:
        assert running.grpc == f"127.0.0.1:{port}"
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with nothing but the file and what was generated from it."""
    made = tmp_path_factory.mktemp("stranger")
    shutil.copy(PROTO, made)
    generate = ("-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=.")
    command = [sys.executable, *generate, "dispatcher.proto"]
    subprocess.run(command, cwd=made, check=True, timeout=GENEROUS_S)
    return made


def work(stack: RunningStack, home: Path, program: str) -> list[object]:
    """What a worker prints that runs to its end."""
    done = subprocess.run(
        [sys.executable, "-c", program, stack.grpc],
        cwd=home,
        env=clean_environment(),
        timeout=GENEROUS_S,
        stdout=subprocess.PIPE,
        check=True,
    )
    printed: list[object] = msgspec.json.decode(done.stdout)
    return printed


def test_a_stranger_claims_and_reports_a_run(stack: RunningStack, home: Path) -> None:
    job_id = create(stack, "invoice", "billing")
    run_id, queue, payload, attempt = work(stack, home, POLLING)
    run = ends_as(stack, job_id, "succeeded")
    assert (run["run_id"], run["attempt"]) == (run_id, attempt)
    assert (queue, msgspec.json.decode(str(payload))) == ("billing", {"name": "invoice"})


def test_a_stranger_works_over_a_stream(stack: RunningStack, home: Path) -> None:
    jobs = [create(stack, name, "streams") for name in ("first", "second")]
    payloads = work(stack, home, STREAMING)
    assert [msgspec.json.decode(str(each))["name"] for each in payloads] == ["first", "second"]
    for job_id in jobs:
        ends_as(stack, job_id, "succeeded")
