"""One world for every contract test, twice: on memory and on Postgres."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import UUID, uuid4

import pytest
from msgspec import Raw
from tests.postgres import Connect

from wheelsched.config import StoreConfig
from wheelsched.core.model import Job, JobState, RunKey, RunState, Target
from wheelsched.core.partition import partition_of
from wheelsched.core.spec import Spec
from wheelsched.core.token import first_token
from wheelsched.ports import (
    Claim,
    ClaimedRun,
    Hint,
    HintSource,
    Lease,
    Registration,
    Settled,
    Stores,
)
from wheelsched.store.database import Database
from wheelsched.store.hints import PostgresHints
from wheelsched.store.postgres import PostgresStore
from wheelsched.testing import MemoryStore

Listen = Callable[[Callable[[Hint], None]], Awaitable[HintSource]]
ALL = range(256)
TTL_US = 5_000_000
MINUTE_US = 60_000_000


class World:
    """A store as its shard and as its API see it, and the words that the tests are told in."""

    def __init__(
        self, shard: Stores, api: Stores, listen: Listen, tenant_id: UUID, other_id: UUID
    ) -> None:
        self.listen = listen
        self.leases, self.timers, self.runs = shard.leases, shard.timers, shard.runs
        self.jobs, self.history = api.jobs, api.history
        self.tenant_id, self.other_id = tenant_id, other_id
        self.now_us = time.time_ns() // 1_000_000 * 1_000
        self._token = first_token(1)

    def token(self) -> int:
        self._token += 1
        return self._token

    def job(self, name: str = "report", **changes: object) -> Job:
        fields: dict[str, object] = {
            "job_id": uuid4(),
            "tenant_id": self.tenant_id,
            "name": name,
            "schedule": Raw(b'"* * * * *"'),
            "spec": Spec(kind="cron", expression="* * * * *", timezone="Europe/London"),
            "anchor_us": self.now_us,
            "target": Target(url="https://example.org/", headers={"x-team": "a"}),
            "payload": Raw(b'{ "as":\t"written" }'),
            "tags": {"team": "a"},
            "created_at_us": self.now_us,
            "updated_at_us": self.now_us,
        }
        return Job(**(fields | changes))  # type: ignore[arg-type]

    async def register(self, due_us: int | None, name: str = "report") -> Job:
        job = self.job(name)
        assert await self.jobs.register(self.tenant_id, [Registration(job, due_us)]) == set()
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

    async def due(self, job: Job) -> int | None:
        """The due time of a job's timer."""
        horizon = await self.timers.load([partition_of(job.job_id)], self.now_us + 10**15)
        found = [due_us for job_id, due_us, _ in horizon if job_id == job.job_id]
        return found[0] if found else None

    async def state(self, key: RunKey) -> RunState:
        run, _ = await self.history.get_run(self.tenant_id, key)
        return run.state

    async def job_state(self, job: Job) -> JobState:
        return (await self.jobs.get(self.tenant_id, job.job_id)).state

    def settled(self, key: RunKey, token: int, state: RunState, **changes: object) -> Settled:
        fields: dict[str, object] = {
            "key": key,
            "token": token,
            "state": state,
            "started_at_us": key.due_us + 2_000,
            "finished_at_us": key.due_us + 9_000,
            "lateness_us": 2_000,
        }
        return Settled(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def memory_world() -> World:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    return World(store, store, store.listen, uuid4(), uuid4())


@pytest.fixture
async def postgres_world(database: str, connect: Connect) -> AsyncIterator[World]:
    tenant_id, other_id = uuid4(), uuid4()
    owner = await connect(database)
    for name, identity in (("one", tenant_id), ("other", other_id)):
        await owner.execute("INSERT INTO tenants (tenant_id, name) VALUES ($1, $2)", identity, name)
    as_shard = StoreConfig(url=database, role="shard")
    async with (
        await Database.open(as_shard) as shard,
        await Database.open(StoreConfig(url=database, role="api")) as api,
    ):
        listen = partial(PostgresHints.open, as_shard)
        yield World(PostgresStore(shard), PostgresStore(api), listen, tenant_id, other_id)


@pytest.fixture(params=["memory_world", "postgres_world"])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.getfixturevalue(request.param)
    return made
