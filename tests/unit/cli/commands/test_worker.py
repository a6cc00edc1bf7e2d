"""`wheelsched worker`: a process of its own, real signals."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.api import Api, machine_us, serve
from tests.stack import PROGRAM, clean_environment
from tests.waiting import until
from tests.work import MemoryRun, MemoryWork

from wheelsched.cli.commands.worker import load_worker
from wheelsched.core.outcome import Succeeded
from wheelsched.errors import WorkerNotFound
from wheelsched.testing import MemoryStore

APPLICATION = """
import asyncio
from pathlib import Path

from wheelsched.worker import Worker

worker = Worker()


@worker.job()
async def wait_for(name: str | None) -> None:
    if name:
        Path(f"{name}.begun").touch()
        while not Path(name).exists():
            await asyncio.sleep(0.01)
"""


class Served:
    """The API and its queues, and processes of workers."""

    def __init__(self, api: Api, work: MemoryWork, home: Path) -> None:
        self.api = api
        self.work = work
        self.home = home
        (home / "jobs.py").write_text(APPLICATION)

    def add(self, name: str = "") -> MemoryRun:
        """Makes a run due whose handler waits for a file of this name."""
        (added,) = self.work.add(self.api.tenant_id, payload=name)
        return added

    async def start(self) -> asyncio.subprocess.Process:
        options = ["--queue", "billing", "--queue", "mail", "--concurrency", "5"]
        return await asyncio.create_subprocess_exec(
            *PROGRAM,
            *("worker", "jobs:worker", *options, "--url", self.api.url),
            cwd=self.home,
            env=clean_environment() | {"WHEELSCHED_TOKEN": self.api.token},
        )

    async def has(self, name: str) -> None:
        """Returns when a file is there."""

        async def is_there() -> bool:
            return (self.home / name).exists()

        await until(is_there)

    async def finished(self, run: MemoryRun) -> None:
        async def has_ended() -> bool:
            return run.outcome is not None

        await until(has_ended)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    work = MemoryWork(machine_us)
    async with serve(store, store, work=work, stop_timeout_ms=1_000) as api:
        yield Served(api, work, tmp_path)


@pytest.mark.proof
async def test_a_worker_finishes_what_it_has_on_sigterm(served: Served) -> None:
    process = await served.start()
    run = served.add("go-on")
    await served.has("go-on.begun")
    (subscription,) = served.work.subscriptions
    assert (subscription.queues, subscription.credits) == (("billing", "mail"), 4)
    process.send_signal(signal.SIGTERM)

    async def is_draining() -> bool:
        return not served.work.subscriptions

    await until(is_draining)
    later = served.add()
    (served.home / "go-on").touch()
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert run.outcome == Succeeded()
    assert later.handed_out == 0


@pytest.mark.proof
async def test_a_second_signal_ends_the_worker_at_once(served: Served) -> None:
    process = await served.start()
    run = served.add("never")
    await served.has("never.begun")
    process.send_signal(signal.SIGINT)

    async def is_draining() -> bool:
        return not served.work.subscriptions

    await until(is_draining)
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 60) == 130
    assert run.outcome is None


@pytest.mark.proof
async def test_the_runs_of_a_killed_worker_go_to_another(served: Served) -> None:
    killed, other = await served.start(), None
    run = served.add("go-on")
    await served.has("go-on.begun")
    killed.kill()
    await killed.wait()
    (served.home / "go-on").touch()
    other = await served.start()
    run.until_us = 0  # its lease is over
    served.work.expire()
    await served.finished(run)
    assert (run.outcome, run.attempt) == (Succeeded(), 2)
    other.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(other.wait(), 60) == 0


@pytest.mark.parametrize("target", ["jobs", "jobs:", ":worker", "no_such:worker", "json:loads"])
def test_an_object_other_than_a_worker_is_refused(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(WorkerNotFound, match="expected MODULE:WORKER"):
        load_worker(target)
