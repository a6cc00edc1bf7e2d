"""Shards and processes with workers that pull, on real rows and sockets, when some of them fail."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fleet import Fleet, fleet_on
from tests.waiting import WAIT_LIMIT_S, until

from wheelsched.core.model import Job, QueueTarget, RunState
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy

pytestmark = pytest.mark.proof  # shards in processes of their own

PROCESS = Path(__file__).parents[1] / "puller_process.py"
BESIDE = OverlapPolicy(policy=OnOverlap.ALLOW)
JOBS = 20


class Puller:
    """A process with a worker that pulls, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reading = asyncio.ensure_future(self._read())
        self.got: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()

    @classmethod
    async def start(cls, fleet: Fleet) -> "Puller":
        command = sys.executable, str(PROCESS), fleet.url, str(fleet.caller.tenant_id)
        return cls(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def until_accepted(self, more: int) -> None:
        """Waits until it has brought so many more runs to their end."""
        expected = len(self.accepted) + more

        async def has() -> bool:
            return len(self.accepted) >= expected

        await until(has)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            word, run_id = line.decode().split()
            if word == "got":
                self.got[run_id] += 1
            elif word == "accepted":
                self.accepted[run_id] += 1


@pytest.fixture
async def fleet(database: str) -> AsyncIterator[Fleet]:
    async with fleet_on(database) as fleet:
        yield fleet


@pytest.fixture
async def pullers(fleet: Fleet) -> AsyncIterator[list[Puller]]:
    started = [await Puller.start(fleet) for _ in range(2)]
    yield started
    for puller in started:
        await puller.kill()


async def start(fleet: Fleet, pullers: list[Puller]) -> list[Job]:
    """Two shards, two processes, and jobs that are due each second, all at work."""
    await fleet.start("a")
    await fleet.start("b")
    jobs = await fleet.register(
        ["* * * * * *"] * JOBS, overlap=BESIDE, target=QueueTarget(queue="billing")
    )
    for puller in pullers:
        await puller.until_accepted(JOBS)
    return jobs


async def check_all(fleet: Fleet, jobs: list[Job], pullers: list[Puller]) -> None:
    """Each run that was due has succeeded, and each one was at a worker."""
    now_us = await fleet.now_us()

    async def have_ended() -> bool:
        due = [run for run in await fleet.runs(jobs) if run.due_us <= now_us]
        return all(run.state is RunState.SUCCEEDED for run in due)

    await until(have_ended)
    got = sum((puller.got for puller in pullers), Counter[str]())
    for run in await fleet.runs(jobs):
        assert run.state is not RunState.SUCCEEDED or got[run.run_id], run
        assert run.state not in (RunState.DEAD, RunState.SKIPPED), run


async def test_every_run_reaches_a_worker_once_for_each_attempt(
    fleet: Fleet, pullers: list[Puller]
) -> None:
    jobs = await start(fleet, pullers)
    for puller in pullers:
        await puller.until_accepted(JOBS)
    await check_all(fleet, jobs, pullers)
    ended = [run for run in await fleet.runs(jobs) if run.state is RunState.SUCCEEDED]
    got = sum((puller.got for puller in pullers), Counter[str]())
    assert len(ended) >= 4 * JOBS
    for run in ended:  # an attempt may be repeated if a process stalls for its delivery lease
        assert got[run.run_id] <= run.attempt, run


async def test_a_shard_that_is_killed_or_frozen_loses_nothing(
    fleet: Fleet, pullers: list[Puller]
) -> None:
    jobs = await start(fleet, pullers)
    fleet.signal("a", signal.SIGSTOP)
    await fleet.until_owned(1)  # the other one has taken over
    await pullers[0].until_accepted(2 * JOBS)
    fleet.signal("a", signal.SIGCONT)
    await fleet.until_owned(2)
    await pullers[0].until_accepted(2 * JOBS)
    await fleet.kill("b")
    await pullers[0].until_accepted(2 * JOBS)
    await check_all(fleet, jobs, pullers)


async def test_a_process_that_is_killed_or_frozen_loses_nothing(
    fleet: Fleet, pullers: list[Puller]
) -> None:
    jobs = await start(fleet, pullers)
    frozen, other = pullers
    frozen.signal(signal.SIGSTOP)
    async with asyncio.timeout(WAIT_LIMIT_S):
        await other.until_accepted(10 * JOBS)
    frozen.signal(signal.SIGCONT)
    await frozen.until_accepted(JOBS)  # it connects again by itself
    await frozen.kill()
    await other.until_accepted(5 * JOBS)
    await check_all(fleet, jobs, pullers)
