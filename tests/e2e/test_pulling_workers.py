"""Workers that pull, on the whole stack: processes, signals and Postgres are real."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import eventually
from tests.stack import GENEROUS_S, PROGRAM, RunningStack, clean_environment

pytestmark = pytest.mark.proof  # the stack, and workers

APPLICATION = """
import asyncio
import os
from pathlib import Path

from wheelsched.worker import Run, Worker

worker = Worker()


@worker.job()
async def note(payload: dict[str, str], run: Run) -> None:
    name = payload["name"]
    with Path(f"{name}.log").open("a") as log:
        print(os.getpid(), run.attempt, file=log)
    while name.startswith("slow") and not Path("go-on").exists():
        await asyncio.sleep(0.01)
"""


@contextmanager
def pulling(stack: RunningStack, home: Path, queue: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a worker, until the end of the block."""
    (home / "jobs.py").write_text(APPLICATION)
    process = subprocess.Popen(
        [*PROGRAM, "worker", "jobs:worker", "--queue", queue, "--url", stack.url],
        cwd=home,
        env=clean_environment(),
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(GENEROUS_S)


def create(stack: RunningStack, name: str, queue: str, schedule: str = "in 1s") -> str:
    """The id of a new job for a queue."""
    options = ("--schedule", schedule, "--queue", queue, "--payload", f'{{"name": "{name}"}}')
    job: dict[str, Any] = stack.read("job", "create", name, *options)
    job_id: str = job["job_id"]
    return job_id


def run_of(stack: RunningStack, job_id: str) -> dict[str, Any] | None:
    runs = stack.read("run", "list", job_id)
    items: list[dict[str, Any]] = runs["items"] if isinstance(runs, dict) else runs
    return items[0] if items else None


def ends_as(stack: RunningStack, job_id: str, state: str) -> dict[str, Any]:
    """The run of a job, when it has ended so."""
    eventually(lambda: (run_of(stack, job_id) or {}).get("state") == state)
    run = run_of(stack, job_id)
    assert run is not None
    return run


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_reaches_a_worker_that_pulls(stack: RunningStack, tmp_path: Path) -> None:
    with pulling(stack, tmp_path, "billing") as worker:
        job_id = create(stack, "quick", "billing")
        ends_as(stack, job_id, "succeeded")
        assert lines(tmp_path / "quick.log") == [[str(worker.pid), "1"]]


def test_a_run_waits_for_a_worker(stack: RunningStack, tmp_path: Path) -> None:
    """No attempt is spent while there is none."""
    job_id = create(stack, "patient", "mail")

    def is_waiting() -> bool:
        queues = stack.read("queue", "list")["items"]
        return [each["depth"] for each in queues if each["queue"] == "mail"] == [1]

    eventually(is_waiting)
    with pulling(stack, tmp_path, "mail"):
        run = ends_as(stack, job_id, "succeeded")
    assert run["attempt"] == 1


def test_the_runs_of_a_killed_worker_go_to_another(stack: RunningStack, tmp_path: Path) -> None:
    with pulling(stack, tmp_path, "reports") as killed:
        job_id = create(stack, "slow", "reports")
        eventually(lambda: bool(lines(tmp_path / "slow.log")))
        killed.kill()
        killed.wait(GENEROUS_S)
    (tmp_path / "go-on").touch()
    with pulling(stack, tmp_path, "reports") as other:
        run = ends_as(stack, job_id, "succeeded")
        log = lines(tmp_path / "slow.log")
    assert log[0] == [str(killed.pid), "1"]
    assert log[-1][0] == str(other.pid)
    assert run["attempt"] == len(log) == 2


def test_a_terminated_worker_finishes_its_run(stack: RunningStack, tmp_path: Path) -> None:
    with pulling(stack, tmp_path, "exports") as worker:
        job_id = create(stack, "slow export", "exports")
        eventually(lambda: bool(lines(tmp_path / "slow export.log")))
        worker.terminate()
        (tmp_path / "go-on").touch()
        assert worker.wait(GENEROUS_S) == 0
    run = ends_as(stack, job_id, "succeeded")
    assert run["attempt"] == 1
