"""One world for every contract test, twice: on memory and on Postgres."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple, Self
from uuid import UUID, uuid4

import msgspec
import pytest
from msgspec import Raw
from tests.contract.applications import Application, InMemory, OnPostgres
from tests.postgres import TIMEOUTS, Connect

from wheelsched.config import StoreConfig
from wheelsched.core.model import HttpTarget, Job, JobState, Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.core.token import first_token
from wheelsched.ports import (
    Backend,
    Caller,
    Claim,
    ClaimedRun,
    DeadFilter,
    Ending,
    Hint,
    HintSource,
    Lease,
    LeaseStore,
    Mark,
    Registration,
    Settled,
    Stores,
    Tenant,
)
from wheelsched.schedule.spec import Spec
from wheelsched.store.connections.database import Database
from wheelsched.store.for_shard.hints import PostgresHints
from wheelsched.store.postgres import PostgresStore
from wheelsched.testing import MemoryStore

Audited = tuple[UUID, str, str, str, dict[str, object]]
ReadAudit = Callable[[], Awaitable[list[Audited]]]
Listen = Callable[[Callable[[Hint], None]], Awaitable[HintSource]]
ALL = range(256)
TTL_US = 60_000_000  # no lease expires by itself
MINUTE_US = 60_000_000


class Process(NamedTuple):
    """Another process of a shard."""

    leases: LeaseStore
    die: Callable[[], Awaitable[None]]  # the kernel closes its sockets


class World:
    """A store as its shard and as its API see it, and the words that the tests are told in."""

    def __init__(
        self,
        shard: Stores,
        api: Stores,
        listen: Listen,
        audit: ReadAudit,
        application: Application,
        start_process: Callable[[], Awaitable[Process]],
        end_backend: Callable[[Backend], Awaitable[None]],
    ) -> None:
        self.listen = listen
        self.start_process = start_process
        self.end_backend = end_backend
        self.audit = audit
        self.application = application
        self.plans = shard.plans
        self.leases, self.timers, self.runs = shard.leases, shard.timers, shard.runs
        self.jobs, self.history, self.tenants = api.jobs, api.history, api.tenants
        self.idempotency = api.idempotency
        self.links, self.shard_links = api.links, shard.links
        self.api_timers = api.timers
        self.shard_tenants = shard.tenants
        self.caller, self.other = Caller(uuid4(), "somebody"), Caller(uuid4(), "another")
        self.now_us = time.time_ns() // 1_000_000 * 1_000
        self._token = first_token(1)

    def token(self) -> int:
        self._token += 1
        return self._token

    async def settle_in(self) -> Self:
        """Makes the tenants."""
        for name, caller in (("one", self.caller), ("other", self.other)):
            await self.tenants.create("operator", self.tenant(name, tenant_id=caller.tenant_id))
        return self

    def tenant(self, name: str, **changes: object) -> Tenant:
        fields: dict[str, object] = {
            "tenant_id": uuid4(),
            "name": name,
            "created_at_us": self.now_us,
        }
        return Tenant(**(fields | changes))  # type: ignore[arg-type]

    def job(self, name: str = "report", **changes: object) -> Job:
        fields: dict[str, object] = {
            "job_id": uuid4(),
            "tenant_id": self.caller.tenant_id,
            "name": name,
            "schedule": Raw(b'"* * * * *"'),
            "spec": Spec(kind="cron", expression="* * * * *", timezone="Europe/London"),
            "anchor_us": self.now_us,
            "target": HttpTarget(url="https://example.org/", headers={"x-team": "a"}),
            "payload": Raw(b'{ "as":\t"written" }'),
            "tags": {"team": "a"},
            "created_at_us": self.now_us,
            "updated_at_us": self.now_us,
        }
        return Job(**(fields | changes))  # type: ignore[arg-type]

    async def register(self, due_us: int | None, name: str = "report") -> Job:
        job = self.job(name)
        assert await self.jobs.register(self.caller, [Registration(job, due_us)]) == set()
        return job

    async def own_all(self) -> Lease:
        """A new shard that owns every partition that is free."""
        lease = await self.leases.join(uuid4(), TTL_US)
        await self.leases.acquire(lease, ALL)
        return lease

    def claim(self, job: Job, due_us: int, **changes: object) -> Claim:
        fields: dict[str, object] = {
            "job_id": job.job_id,
            "tenant_id": job.tenant_id,
            "version": job.version,
            "due_us": due_us,
            "next_due_us": due_us + MINUTE_US,
            "runs": (ClaimedRun(due_us, self.token()),),
        }
        return Claim(**(fields | changes))  # type: ignore[arg-type]

    async def arm(self, lease: Lease, job: Job, due_us: int) -> tuple[RunKey, int]:
        claim = self.claim(job, due_us)
        assert await self.timers.arm(lease, [claim]) == set()
        return RunKey(job.job_id, due_us), claim.runs[0].token

    def marks(self, partitions: Iterable[int], live_since_us: int) -> dict[int, Mark]:
        return {partition: Mark(live_since_us, self.token()) for partition in partitions}

    async def due(self, job: Job) -> int | None:
        """The due time of a job's timer."""
        horizon = await self.timers.load([partition_of(job.job_id)], self.now_us + 10**15)
        found = [due_us for job_id, due_us, _ in horizon if job_id == job.job_id]
        return found[0] if found else None

    async def list_dead(self, limit: int = 9, after: RunKey | None = None) -> list[RunKey]:
        found = await self.history.list_dead(self.caller, DeadFilter(), limit, after)
        return [run.key for run in found]

    async def registry(self, lease: Lease) -> list[Run]:
        """Every unfinished run of the shard, as the next owner would meet it."""
        keys = await self.runs.list_unfinished(lease, ALL, 100)
        found = {checked.run.key: checked.run for checked in await self.runs.revalidate(keys)}
        return [found[key] for key in keys]

    async def state(self, key: RunKey) -> RunState:
        run, _ = await self.history.get_run(self.caller, key)
        return run.state

    async def job_state(self, job: Job) -> JobState:
        return (await self.jobs.get(self.caller, job.job_id)).state

    def settled(self, key: RunKey, token: int, state: RunState, **changes: object) -> Settled:
        fields: dict[str, object] = {
            "state": state,
            "started_at_us": key.due_us + 2_000,
            "finished_at_us": key.due_us + 9_000,
            "lateness_us": 2_000,
        }
        return Settled(key, token, Ending(**(fields | changes)))  # type: ignore[arg-type]


@pytest.fixture
async def memory_world() -> World:
    store = MemoryStore(lambda: time.time_ns() // 1_000)

    async def audit() -> list[Audited]:
        return [
            (row.tenant_id, row.actor, row.entry.verb, row.entry.subject, row.entry.detail)
            for row in store._tables.audit
        ]

    async def start_process() -> Process:
        leases = store.for_process().leases

        async def die() -> None:
            assert leases.connection is not None
            leases.connection.close()

        return Process(leases, die)

    async def end_backend(backend: Backend) -> None:
        store.server.end(backend)

    return await World(
        store, store, store.listen, audit, InMemory(store), start_process, end_backend
    ).settle_in()


@pytest.fixture
async def postgres_world(database: str, connect: Connect) -> AsyncIterator[World]:
    owner = await connect(database)

    async def audit() -> list[Audited]:
        rows = await owner.fetch(
            "SELECT tenant_id, actor, verb, subject, detail FROM audit ORDER BY audit_id"
        )
        return [(*row[:4], msgspec.json.decode(row["detail"])) for row in rows]

    as_shard = StoreConfig(url=database, role="shard", **TIMEOUTS)

    async def start_process() -> Process:
        opened = await processes.enter_async_context(await Database.open(as_shard))

        async def die() -> None:
            opened.lease_connections.close()

        return Process(PostgresStore(opened).leases, die)

    async def end_backend(backend: Backend) -> None:
        assert await owner.fetchval("SELECT pg_terminate_backend($1, 10000)", backend.pid)

    async with (
        AsyncExitStack() as processes,
        await Database.open(as_shard) as shard,
        await Database.open(StoreConfig(url=database, role="api", **TIMEOUTS)) as api,
    ):
        listen = partial(PostgresHints.open, as_shard)
        application = OnPostgres(database, owner, connect)
        world = World(
            PostgresStore(shard),
            PostgresStore(api),
            listen,
            audit,
            application,
            start_process,
            end_backend,
        )
        yield await world.settle_in()


@pytest.fixture(params=["memory_world", "postgres_world"])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.getfixturevalue(request.param)
    return made
