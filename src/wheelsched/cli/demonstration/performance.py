"""A scenario made to happen: the stack, the worker, the jobs, the kill, the wait.

Invariant: whatever happens, nothing is left behind: no process, no file.
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
from wheelsched.cli.demonstration.records import Orders, Records
from wheelsched.cli.demonstration.scenario import (
    Registered,
    Scenario,
    one_off_jobs,
    recurring_jobs,
)
from wheelsched.client import Client, JobFields
from wheelsched.clock import SystemClock
from wheelsched.config import ApiConfig, DispatchConfig, EgressConfig, EmbeddedConfig
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.core.egress import LOOPBACK
from wheelsched.core.spec import END_US
from wheelsched.daemon.up import Stack, UpConfig, open_stack
from wheelsched.errors import ProcessFailed, WheelschedError
from wheelsched.store.account import make_throwaway_home, server_account

LOOK_NS: Final = 100_000_000
PATIENCE_US: Final = 30 * SECOND  # for what is late, before it is lost


class Audience(Protocol):
    """Who watches."""

    def begin(self, what: str, total: int | None = None) -> None:
        """Something begins that has so many steps."""

    def advance(self, done: int) -> None:
        """So many of them are done."""


def perform(scenario: Scenario, audience: Audience) -> Evidence:
    """Makes it happen, on a throw-away database, and gives what was seen."""
    home = make_throwaway_home(server_account(None), "wheelsched-demo-")
    began_ns = SystemClock.now_ns()
    try:
        (home / "records").touch(mode=0o600)
        seen = asyncio.run(_perform(scenario, audience, home))
        took_us = (SystemClock.now_ns() - began_ns) // 1_000
        return msgspec.structs.replace(seen, took_us=took_us)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _perform(scenario: Scenario, audience: Audience, home: Path) -> Evidence:
    audience.begin(f"starting Postgres, the API and {scenario.shards} shards")
    records = home / "records"
    async with (
        open_stack(_config(scenario, home)) as stack,
        _worker(stack, records) as url,
        Client(stack.url) as client,
    ):
        performance = Performance(scenario, audience, stack, client, Records(records))
        return await performance.run(url)


class Performance:
    """One scenario, on a stack that runs."""

    def __init__(
        self,
        scenario: Scenario,
        audience: Audience,
        stack: Stack,
        client: Client,
        records: Records,
    ) -> None:
        self._scenario = scenario
        self._audience = audience
        self._stack = stack
        self._client = client
        self._records = records
        self._machine = SystemClock()

    async def run(self, url: str) -> Evidence:
        """From the first registration to the last arrival."""
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
        await self._all_have_come(one_offs)
        evidence = Evidence(
            registered=registered, arrivals=[], since_us=since_us, until_us=END_US, kill=kill
        )
        if kill is not None:
            await self._is_taken_over(evidence)
        return await self._calm_down(evidence)

    async def _register(self, what: str, jobs: Iterable[JobFields]) -> frozenset[UUID]:
        total = self._scenario.one_offs if what == "one-offs" else self._scenario.recurring
        self._audience.begin(f"registering {total:,} {what}", total)
        job_ids: set[UUID] = set()
        async for answer in self._client.create_jobs(jobs):
            for item in answer.items:
                if item.job_id is None:
                    detail = item.problem.detail if item.problem else "no reason was given"
                    raise WheelschedError(f"a job was refused: {detail}")
                job_ids.add(item.job_id)
            self._audience.advance(len(job_ids))
        return frozenset(job_ids)

    async def _kill(self, due_us: int) -> Kill:
        """Kills the first shard in the middle of the hot second."""
        self._audience.begin("waiting for the instant")
        at_us = due_us + self._scenario.kill_after_ms * MILLISECOND
        await self._until(due_us - SECOND)
        victim = self._stack.shards[0]
        shards = await self._client.list_shards()
        (partitions,) = [
            frozenset(shard.partitions) for shard in shards.items if shard.address == victim.address
        ]
        await self._until(at_us)
        victim.send_signal(signal.SIGKILL)
        return Kill(self._machine.wall_us(), partitions)

    async def _all_have_come(self, job_ids: frozenset[UUID]) -> None:
        """Waits for every one-off, as long as there is hope."""
        self._audience.begin(f"{len(job_ids):,} jobs at one instant", len(job_ids))
        came: set[UUID] = set()
        until_us = self._machine.wall_us() + PATIENCE_US + self._scenario.lead_s * SECOND
        while len(came) < len(job_ids) and self._machine.wall_us() < until_us:
            await self._machine.sleep(LOOK_NS)
            came |= {each.job_id for each in self._records.read_on()} & job_ids
            self._audience.advance(len(came))

    async def _is_taken_over(self, evidence: Evidence) -> None:
        """Waits until somebody else runs the jobs of the dead shard."""
        self._audience.begin("waiting for the takeover")
        until_us = self._machine.wall_us() + PATIENCE_US
        while self._machine.wall_us() < until_us:
            if self._seen(evidence).takeover_us is not None:
                return
            await self._machine.sleep(5 * LOOK_NS)

    def _seen(self, evidence: Evidence) -> Evidence:
        """The evidence with what has come since."""
        self._records.read_on()
        return msgspec.structs.replace(evidence, arrivals=list(self._records.arrivals))

    async def _calm_down(self, evidence: Evidence) -> Evidence:
        """Lets the recurring jobs go on for a while, and waits for what is due until then."""
        steady_us = self._scenario.steady_s * SECOND
        until_us = _whole_second(self._machine.wall_us() + steady_us)
        self._audience.begin("going on for a while")
        await self._until(until_us)
        bounded = msgspec.structs.replace(evidence, until_us=until_us)
        while True:
            seen = self._seen(bounded)
            if not seen.lost or self._machine.wall_us() > until_us + PATIENCE_US:
                return seen
            await self._machine.sleep(5 * LOOK_NS)

    async def _until(self, when_us: int) -> None:
        await self._machine.sleep(max(0, when_us - self._machine.wall_us()) * 1_000)


@asynccontextmanager
async def _worker(stack: Stack, records: Path) -> AsyncIterator[str]:
    """A worker in a process of its own; gives where it listens."""
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
        process.stdin.write(msgspec.json.encode(Orders(stack.secret, str(records))) + b"\n")
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise ProcessFailed("the worker ended before it was ready")
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
