"""An application with roles of its own, beside the tables of the scheduler."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import Struct
from tests.postgres import TIMEOUTS, Connect

from wheelsched.config import StoreConfig
from wheelsched.core.model import Draft, Job
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.jobs.drafts import judge_draft
from wheelsched.ports import Caller, Lease, Plan, Tenant
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.for_api.grants import Grants
from wheelsched.store.postgres import PostgresStore

URL = "https://example.org/hook"
ALL = range(256)
NOW_US = 1_900_000_000_000_000


class Place(Struct, frozen=True, eq=False):
    """A database with two tenants, a role for each, and one for neither."""

    url: str
    owner: Connection
    database: Database
    connect: Connect
    callers: dict[str, Caller]
    roles: dict[str, str]

    @property
    def store(self) -> PostgresStore:
        return PostgresStore(self.database)

    async def application(self, tenant: str = "acme") -> Connection:
        return await self.connect(self.url, role=self.roles[tenant], search_path="public")

    async def read(self, job_id: UUID, tenant: str = "acme") -> Job | Draft:
        return await self.store.jobs.read(self.callers[tenant], job_id)

    async def plan_all(self) -> None:
        """What a shard does on a hint."""
        lease = await self.store.leases.join(uuid4(), 5_000_000)
        await self.store.leases.acquire(lease, ALL)
        await plan_all(self.store, lease)
        await self.store.leases.leave(lease)


async def plan_all(store: PostgresStore, lease: Lease) -> None:
    entries = await store.plans.list_unplanned(ALL, 1_000)
    drafts = [(entry.number, entry.draft) for entry in entries if entry.draft]
    plans = [
        Plan(number=number, draft=draft, registration=judge_draft(draft, NO_EXCEPTIONS))
        for number, draft in drafts
    ]
    await store.plans.plan(lease, plans)
    await store.plans.clear(lease, [entry.number for entry in entries if not entry.draft])


@pytest.fixture
async def place(database: str, connect: Connect) -> Any:
    owner = await connect(database)
    async with await Database.open(StoreConfig(url=database, role="owner", **TIMEOUTS)) as opened:
        callers: dict[str, Caller] = {}
        roles = {name: f"{name}_{uuid4().hex}" for name in ("acme", "globex", "stranger")}
        for name, role in roles.items():
            await owner.execute(f"CREATE ROLE {role}")
            if name != "stranger":
                callers[name] = Caller(uuid4(), "test")
                tenant = Tenant(tenant_id=callers[name].tenant_id, name=name, created_at_us=NOW_US)
                await PostgresStore(opened).tenants.create("test", tenant)
                await Grants(opened).grant("test", tenant.tenant_id, role)
        yield Place(database, owner, opened, connect, callers, roles)


async def schedule(application: Connection, name: str = "remind", **changes: object) -> UUID:
    """Calls with arguments by their names."""
    arguments: dict[str, object] = {"name": name, "schedule": "0 9 * * 1", "url": URL} | changes
    named = ", ".join(f"{key} => ${number}" for number, key in enumerate(arguments, 1))
    values = [
        json.dumps(value) if key in ("payload", "options") else value
        for key, value in arguments.items()
    ]
    job_id: UUID = await application.fetchval(f"SELECT wheelsched.schedule({named})", *values)
    return job_id
