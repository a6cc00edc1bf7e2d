"""An API for the tests: an application on a store, and a client."""

import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID, uuid4

from aiohttp import ClientResponse, ClientSession
from msgspec import Struct
from multidict import CIMultiDict

from wheelsched.api.app import build_app
from wheelsched.api.environment import Environment, no_refresh
from wheelsched.api.http.authentication import digest_of
from wheelsched.api.http.server import ApiServer
from wheelsched.config import ApiConfig
from wheelsched.core.model import Job, Run, RunKey, RunState
from wheelsched.core.token import first_token
from wheelsched.ports import (
    Caller,
    Claim,
    ClaimedRun,
    Ending,
    Lease,
    Settled,
    Stores,
    Tenant,
    Token,
)
from wheelsched.ports.work import WorkSource
from wheelsched.testing import VirtualClock
from wheelsched.vitals import ApiVitals
from wheelsched.wire.tenant import Scope

DOCUMENT: dict[str, Any] = {
    "name": "weekly-report",
    "schedule": "0 9 * * 1",
    "timezone": "America/New_York",
    "target": {"url": "https://example.org/hooks/report"},
}

PROBES = ("/healthz", "/readyz", "/metrics", "/openapi.json")


def document(**changes: Any) -> dict[str, Any]:
    return DOCUMENT | changes


class Answered(Struct, frozen=True):
    """An answer, read."""

    status: int
    headers: CIMultiDict[str]
    body: Any

    @property
    def pointers(self) -> list[str]:
        return [error["pointer"] for error in self.body["errors"]]


class Api:
    """The API as its users see it, and the store behind it as its shard does."""

    def __init__(self, client: ClientSession, stores: Stores, shard: Stores) -> None:
        self.client = client
        self.stores = stores
        self.shard = shard
        self._shard_id = uuid4()
        self.now_us = time.time_ns() // 1_000
        self.clock = VirtualClock()
        self.config = ApiConfig()
        self.tenant_id = uuid4()
        self.url = ""
        self.grpc = ""  # the address, if it serves gRPC
        self.stop: Callable[[], Coroutine[Any, Any, None]]
        self.vitals = ApiVitals()
        self.token = "wst_all"
        self._token = first_token(1)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Answered:
        """Send a request; `token=None` sends none."""
        headers = {"Authorization": f"Bearer {options.pop('token', self.token)}"}
        if headers["Authorization"] == "Bearer None":
            headers = {}
        headers |= options.pop("headers", {})
        if isinstance(body, bytes):
            headers.setdefault("Content-Type", "application/json")
            options["data"] = io.BytesIO(body)
        elif body is not None:
            options["json"] = body
        address = path if path in PROBES else f"/api/v1{path}"
        async with self.client.request(method, address, headers=headers, **options) as response:
            return await answered(response)

    async def get(self, path: str, **options: Any) -> Answered:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answered:
        return await self.call("POST", path, body, **options)

    async def create(self, **changes: Any) -> dict[str, Any]:
        made = await self.post("/jobs", document(**changes))
        assert made.status == 201, made.body
        job: dict[str, Any] = made.body
        return job

    async def add_tenant(self, name: str, **changes: Any) -> UUID:
        tenant_id = uuid4()
        tenant = Tenant(tenant_id=tenant_id, name=name, created_at_us=self.now_us, **changes)
        await self.stores.tenants.create("test", tenant)
        return tenant_id

    async def add_token(self, text: str, tenant_id: UUID, *scopes: str) -> None:
        token = Token(
            digest=digest_of(text),
            tenant_id=tenant_id,
            name=text,
            scopes=scopes,
            created_at_us=self.now_us,
        )
        await self.stores.tenants.add_token("test", token)

    async def job(self, job_id: str) -> Job:
        return await self.stores.jobs.get(Caller(self.tenant_id, "test"), UUID(job_id))

    async def own_all(self) -> Lease:
        """The one shard there is, which owns every partition."""
        lease = await self.shard.leases.join(self._shard_id, 5_000_000)
        await self.shard.leases.acquire(lease, range(256))
        return lease

    async def arm(self, lease: Lease, job_id: str, due_us: int, next_due_us: int) -> RunKey:
        """Arm the run of a job that is due, as its shard would."""
        job = await self.job(job_id)
        self._token += 1
        claim = Claim(
            job_id=job.job_id,
            tenant_id=job.tenant_id,
            version=job.version,
            due_us=due_us,
            next_due_us=next_due_us,
            runs=(ClaimedRun(due_us, self._token),),
        )
        assert await self.shard.timers.arm(lease, [claim]) == set()
        return RunKey(job.job_id, due_us)

    async def settle(self, key: RunKey, state: RunState, **changes: Any) -> None:
        """Settle the latest attempt of a run, as its shard would."""
        run = await self.run(key)
        assert run.token is not None
        ending = Ending(
            state=state,
            started_at_us=key.due_us + 2_000,
            finished_at_us=key.due_us + 9_000,
            lateness_us=2_000,
            **changes,
        )
        assert await self.shard.runs.settle([Settled(key, run.token, ending)]) == set()

    async def run(self, key: RunKey) -> Run:
        run, _ = await self.stores.history.get_run(Caller(self.tenant_id, "test"), key)
        return run


async def answered(response: ClientResponse) -> Answered:
    is_json = "json" in response.content_type
    body = await response.json(content_type=None) if is_json else await response.text()
    return Answered(response.status, CIMultiDict(response.headers), body)


def machine_us() -> int:
    return time.time_ns() // 1_000


@asynccontextmanager
async def serve(
    api: Stores,
    shard: Stores,
    *,
    now_us: Callable[[], int] = machine_us,
    refresh_clock: Callable[[], Awaitable[None]] = no_refresh,
    work: WorkSource | None = None,
    **settings: Any,
) -> AsyncIterator[Api]:
    """The API on a store, with one tenant and a token of all scopes."""
    clock = VirtualClock()
    tenant_id = uuid4()
    config = ApiConfig(loopback_tenant_id=tenant_id, port=0, **settings)
    environment = Environment(
        clock=clock,
        now_us=now_us,
        refresh_clock=refresh_clock,
        random=Random(7),
        metrics=lambda: "wheelsched_up 1\n",
        work=work,
    )
    app = build_app(api, environment, config)
    async with (
        await ApiServer.start(app, config) as server,
        ClientSession(server.url) as client,
    ):
        served = Api(client, api, shard)
        served.clock, served.config, served.tenant_id = clock, config, tenant_id
        served.url, served.stop, served.vitals = server.url, server.close, environment.vitals
        if config.grpc is not None:
            from wheelsched.api.grpc.app import GRPC

            served.grpc = app[GRPC].address
        tenant = Tenant(tenant_id=tenant_id, name="one", created_at_us=served.now_us)
        await api.tenants.create("test", tenant)
        await served.add_token(served.token, tenant_id, *Scope)
        yield served
