"""Runs a scenario: starts the stack and the worker, registers jobs, kills a shard, waits.

Invariant: no process and no file is left over, whatever happens.
"""

import asyncio
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

import msgspec

from wheelsched.cli.demonstration.evidence import Evidence, Kill
from wheelsched.cli.demonstration.records import Records, WorkerSetup
from wheelsched.cli.demonstration.scenario import (
    Registered,
    Scenario,
    one_off_jobs,
    recurring_jobs,
)
from wheelsched.client import Client, JobFields
from wheelsched.clock import SystemClock
from wheelsched.config import ApiConfig, DispatchConfig, EgressConfig, EmbeddedConfig
from wheelsched.core.targets.egress import LOOPBACK
from wheelsched.daemon.up import Stack, UpConfig, open_stack
from wheelsched.embedded.account import make_throwaway_home, server_account
from wheelsched.errors import ProcessFailed, WheelschedError
from wheelsched.schedule.spec import END_US
from wheelsched.values.duration import MILLISECOND, SECOND

POLL_NS: Final = 100_000_000
TIMEOUT_US: Final = 30 * SECOND  # how long to wait for late runs before they count as lost


class ProgressReporter(Protocol):
    """Receives progress."""

    def begin(self, what: str, total: int | None = None) -> None:
        """A step begins; `total` is the number of its units."""

    def advance(self, done: int) -> None:
        """`done` units of the step are complete."""


def run_scenario(scenario: Scenario, progress: ProgressReporter) -> Evidence:
    """Runs a scenario on a throw-away database, and returns what was observed."""
    home = make_throwaway_home(server_account(None), "wheelsched-demo-")
    began_ns = SystemClock.now_ns()
    try:
        (home / "records").touch(mode=0o600)
        seen = asyncio.run(_run_scenario(scenario, progress, home))
        took_us = (SystemClock.now_ns() - began_ns) // 1_000
        return msgspec.structs.replace(seen, took_us=took_us)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _run_scenario(scenario: Scenario, progress: ProgressReporter, home: Path) -> Evidence:
    progress.begin(f"starting Postgres, the API and {scenario.shards} shards")
    records = home / "records"
    async with (
        open_stack(_config(scenario, home)) as stack,
        _worker(stack, records) as url,
        Client(stack.url) as client,
    ):
        run = ScenarioRun(scenario, progress, stack, client, Records(records))
        return await run.run(url)


class ScenarioRun:
    """One scenario on a running stack."""

    def __init__(
        self,
        scenario: Scenario,
        progress: ProgressReporter,
        stack: Stack,
        client: Client,
        records: Records,
    ) -> None:
        self._scenario = scenario
        self._progress = progress
        self._stack = stack
        self._client = client
        self._records = records
        self._machine = SystemClock()

    async def run(self, url: str) -> Evidence:
        """Runs from the first registration to the last arrival."""
        scenario = self._scenario
        recurring = await self._register("recurring jobs", recurring_jobs(scenario, url))
        begun_us = self._machine.wall_us()
        since_us = _whole_second(begun_us + 2 * SECOND)
        due_us = _whole_second(begun_us + (scenario.registering_s + scenario.lead_s) * SECOND)
        one_offs = await self._register("one-offs", one_off_jobs(scenario, url, due_us))
        registered = Registered(
            one_offs=one_offs,
            recurring=recurring,
            due_us=due_us,
            took_us=self._machine.wall_us() - begun_us,
        )
        kill = await self._kill(due_us) if scenario.is_killing else None
        await self._wait_for_one_offs(one_offs)
        evidence = Evidence(
            registered=registered, arrivals=[], since_us=since_us, until_us=END_US, kill=kill
        )
        if kill is not None:
            await self._wait_for_takeover(evidence)
        return await self._wait_for_recurring(evidence)

    async def _register(self, what: str, jobs: Iterable[JobFields]) -> frozenset[UUID]:
        total = self._scenario.one_offs if what == "one-offs" else self._scenario.recurring
        self._progress.begin(f"registering {total:,} {what}", total)
        job_ids: set[UUID] = set()
        async for answer in self._client.create_jobs(jobs):
            for item in answer.items:
                if item.job_id is None:
                    detail = item.problem.detail if item.problem else "no reason given"
                    raise WheelschedError(f"a job was rejected: {detail}")
                job_ids.add(item.job_id)
            self._progress.advance(len(job_ids))
        return frozenset(job_ids)

    async def _kill(self, due_us: int) -> Kill:
        """Kills the first shard in the middle of the hot second."""
        self._progress.begin("waiting for the hot second")
        at_us = due_us + self._scenario.kill_after_ms * MILLISECOND
        await self._until(due_us - SECOND)
        victim = self._stack.shards[0]
        shards = await self._client.list_shards()
        (partitions,) = [
            frozenset(shard.partitions) for shard in shards.items if shard.address == victim.address
        ]
        await self._until(at_us)
        victim.send_signal(signal.SIGKILL)
        killed_us = self._machine.wall_us()
        return Kill(killed_us, partitions, await self._owned_by_others(partitions, victim.address))

    async def _owned_by_others(self, partitions: frozenset[int], dead: str) -> int | None:
        """When other shards owned all of the partitions, as the API reports it."""
        until_us = self._machine.wall_us() + TIMEOUT_US
        while self._machine.wall_us() < until_us:
            shards = await self._client.list_shards()
            others = [shard for shard in shards.items if shard.address != dead]
            if partitions <= {each for shard in others for each in shard.partitions}:
                return self._machine.wall_us()
            await self._machine.sleep(POLL_NS // 4)
        return None

    async def _wait_for_one_offs(self, job_ids: frozenset[UUID]) -> None:
        """Waits until every one-off has arrived, or the timeout."""
        self._progress.begin(f"receiving {len(job_ids):,} runs due at one instant", len(job_ids))
        came: set[UUID] = set()
        until_us = self._machine.wall_us() + TIMEOUT_US + self._scenario.lead_s * SECOND
        while len(came) < len(job_ids) and self._machine.wall_us() < until_us:
            await self._machine.sleep(POLL_NS)
            came |= {each.job_id for each in self._records.read_new()} & job_ids
            self._progress.advance(len(came))

    async def _wait_for_takeover(self, evidence: Evidence) -> None:
        """Waits until another shard runs the jobs of the dead one."""
        self._progress.begin("waiting for the takeover")
        until_us = self._machine.wall_us() + TIMEOUT_US
        while self._machine.wall_us() < until_us:
            if self._seen(evidence).takeover_us is not None:
                return
            await self._machine.sleep(5 * POLL_NS)

    def _seen(self, evidence: Evidence) -> Evidence:
        """The evidence with all arrivals so far."""
        self._records.read_new()
        return msgspec.structs.replace(evidence, arrivals=list(self._records.arrivals))

    async def _wait_for_recurring(self, evidence: Evidence) -> Evidence:
        """Lets the recurring jobs run for a while, and waits for all runs due until then."""
        steady_us = self._scenario.steady_s * SECOND
        until_us = _whole_second(self._machine.wall_us() + steady_us)
        self._progress.begin("running the recurring jobs for a while")
        await self._until(until_us)
        bounded = msgspec.structs.replace(evidence, until_us=until_us)
        while True:
            seen = self._seen(bounded)
            if not seen.lost or self._machine.wall_us() > until_us + TIMEOUT_US:
                return seen
            await self._machine.sleep(5 * POLL_NS)

    async def _until(self, when_us: int) -> None:
        await self._machine.sleep(max(0, when_us - self._machine.wall_us()) * 1_000)


@asynccontextmanager
async def _worker(stack: Stack, records: Path) -> AsyncIterator[str]:
    """Starts the worker process and yields its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "wheelsched.cli.demonstration.worker",
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(WorkerSetup(stack.secret, str(records))) + b"\n")
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise ProcessFailed("the worker exited before it was ready")
        yield url
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _config(scenario: Scenario, home: Path) -> UpConfig:
    egress = EgressConfig(allow=LOOPBACK)
    return UpConfig(
        embedded=EmbeddedConfig(home=home / "database"),
        api=ApiConfig(port=0, auth="loopback", egress=egress),
        dispatch=DispatchConfig(egress=egress),
        shards=scenario.shards,
        log_level="error",
    )


def _whole_second(instant_us: int) -> int:
    return -(-instant_us // SECOND) * SECOND
