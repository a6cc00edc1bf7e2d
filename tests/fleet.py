"""A fleet: real shard processes on a real database, calling a real worker."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Raw
from tests.postgres import TIMEOUTS
from tests.shard_process import Terms
from tests.waiting import WAIT_LIMIT_S, until
from tests.workers import Received, Worker, running_worker

from wheelsched.config import StoreConfig
from wheelsched.core.model import HttpTarget, Job, Run, RunState
from wheelsched.ports import Caller, Registration, Tenant
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.values.duration import SECOND

PROCESS = Path(__file__).with_name("shard_process.py")


class Fleet:
    """Shards by name, the store as an operator sees it, and what the worker got."""

    def __init__(self, url: str, database: Database, worker: Worker) -> None:
        self.url = url  # of the shards that are started
        self.database = database
        self.store = PostgresStore(database)
        self.worker = worker
        self.terms = Terms()  # of the shards that are started
        self.caller = Caller(uuid4(), "test")
        self.shards: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        """Starts a shard process, and waits until it owns something."""
        before = await self._owners()
        self.shards[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROCESS), self.url, msgspec.json.encode(self.terms).decode())
        )
        await self.until_owned(before + 1)

    async def until_owned(self, shards: int) -> None:
        """Waits until so many shards own all partitions among them."""
        await until(lambda: self._is_owned(shards))

    async def kill(self, name: str) -> None:
        process = self.shards.pop(name)
        process.kill()
        await process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.shards[name].pid, number)

    async def ended(self, name: str) -> int:
        async with asyncio.timeout(WAIT_LIMIT_S):
            return await self.shards.pop(name).wait()

    async def now_us(self) -> int:
        return (await self.store.leases.read_clock(time.monotonic_ns)).database_us

    async def register(self, schedules: Sequence[str], **fields: object) -> list[Job]:
        """Registers jobs for the worker."""
        now_us = await self.now_us()
        registrations = [
            self._registration(schedule, f"{uuid4()}", now_us, fields) for schedule in schedules
        ]
        assert await self.store.jobs.register(self.caller, registrations) == set()
        return [registration.job for registration in registrations]

    def _registration(
        self, schedule: str, name: str, now_us: int, fields: dict[str, object]
    ) -> Registration:
        spec = parse(schedule, timezone="UTC", now_us=now_us)
        job = Job(
            job_id=uuid4(),
            tenant_id=self.caller.tenant_id,
            name=name,
            schedule=Raw(b'"' + schedule.encode() + b'"'),
            spec=spec,
            anchor_us=now_us,
            created_at_us=now_us,
            updated_at_us=now_us,
            **{"target": HttpTarget(url=self.worker.url)} | fields,  # type: ignore[arg-type] # each by its name
        )
        return Registration(job, compile_schedule(spec, job.job_id, now_us).next_after(now_us))

    @property
    def arrivals(self) -> Counter[str]:
        """How often each run arrived."""
        return Counter(received.headers["wheelsched-run-id"] for received in self.received)

    @property
    def received(self) -> list[Received]:
        return self.worker.received

    async def runs(self, jobs: Sequence[Job]) -> list[Run]:
        """The history of jobs."""
        return [
            run
            for job in jobs
            for run in await self.store.history.list_runs(self.caller, job.job_id, 1_000)
        ]

    async def until_arrived(self, count: int) -> None:
        """Waits until so many runs have arrived."""

        async def have() -> bool:
            return len(self.arrivals) >= count

        await until(have)

    async def until_settled(self, jobs: Sequence[Job], count: int) -> None:
        """Waits until so many runs of these jobs have succeeded."""

        async def have() -> bool:
            runs = await self.runs(jobs)
            return sum(run.state is RunState.SUCCEEDED for run in runs) >= count

        await until(have)

    async def _owners(self) -> int:
        survey = await self.store.leases.survey()
        return len({each.owner for each in survey.partitions if each.owner})

    async def _is_owned(self, shards: int) -> bool:
        survey = await self.store.leases.survey()
        owners = [each.owner for each in survey.partitions]
        return None not in owners and len(set(owners)) == shards


@asynccontextmanager
async def fleet_on(url: str) -> AsyncIterator[Fleet]:
    """A fleet on a migrated database, without shards as yet."""
    config = StoreConfig(url=url, role="owner", **TIMEOUTS)
    async with running_worker() as worker, await Database.open(config) as database:
        fleet = Fleet(url, database, worker)
        tenant = Tenant(
            tenant_id=fleet.caller.tenant_id, name="test", created_at_us=await fleet.now_us()
        )
        await fleet.store.tenants.create("test", tenant)
        try:
            yield fleet
        finally:
            for name in tuple(fleet.shards):
                await fleet.kill(name)


def iso(instant_us: int) -> str:
    """An instant as a schedule has it."""
    instant = datetime.fromtimestamp(instant_us / SECOND, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
