"""Generated requests, valid and invalid by the OpenAPI document: none causes a 500."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)
from tests.api import Api, machine_us, serve
from tests.postgres import TIMEOUTS, temporary_database
from tests.work import MemorySubscription, MemoryWork

from wheelsched.config import StoreConfig
from wheelsched.ports.work import Attempted, QueueRun
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.testing import MemoryStore

CHECKS: list[Any] = [not_a_server_error, content_type_conformance, response_schema_conformance]


class Served(NamedTuple):
    url: str
    headers: dict[str, str]
    known: dict[str, str]  # ids of what is there
    examples: int  # of each call


class BusyWork(MemoryWork):
    """Queues in which a run is always due, so that no claim has to wait."""

    def subscribe(
        self,
        tenant_id: UUID,
        queues: Sequence[str],
        take: Callable[[Sequence[QueueRun], int], None],
        cancel: Callable[[Sequence[Attempted]], None],
    ) -> MemorySubscription:
        self.add(tenant_id, queues[0])
        return super().subscribe(tenant_id, queues, take, cancel)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Api]:
    """An API with auth loopback."""
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store, auth="loopback", work=BusyWork(machine_us)) as api:
        yield api


@asynccontextmanager
async def on_postgres(server_url: str, template: str) -> AsyncIterator[Api]:
    """An API that requires a token, with the database privileges of its role."""
    async with (
        temporary_database(server_url, template) as url,
        await Database.open(StoreConfig(url=url, role="api", **TIMEOUTS)) as database,
        serve(
            PostgresStore(database),
            PostgresStore(database),
            auth="required",
            work=BusyWork(machine_us),
        ) as api,
    ):
        (tenant,) = await api.stores.tenants.read([api.tenant_id])
        await api.stores.tenants.edit("test", replace(tenant, requests_per_second=1_000_000))
        yield api


@pytest.fixture(scope="module", params=["memory", "postgres"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """An API on its own loop and thread, because the requests here are blocking."""
    started: list[Served] = []
    is_ready, stop = threading.Event(), threading.Event()
    is_slow = request.param == "postgres"
    server = map(request.getfixturevalue, ("server_url", "template"))
    opening = on_postgres(*server) if is_slow else in_memory()

    async def run() -> None:
        async with opening as api:
            job_id = (await api.create())["job_id"]
            run_id = (await api.post(f"/jobs/{job_id}/trigger")).body["run_ids"][0]
            headers = {"Authorization": f"Bearer {api.token}"} if is_slow else {}
            known = {"job_id": job_id, "run_id": run_id}
            started.append(Served(api.url, headers, known, 4 if is_slow else 10))
            is_ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert is_ready.wait(60)
    yield started[0]
    stop.set()
    thread.join()


@pytest.mark.proof
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_the_server(served: Served, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    results: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in results]
    assert len(operations) > 30
    for operation in operations:
        if not (mode is GenerationMode.NEGATIVE and is_always_valid(operation)):
            known = known_parameters(operation, served) if mode is GenerationMode.POSITIVE else None
            send(operation.as_strategy(generation_mode=mode, path_parameters=known), served)


def known_parameters(operation: Any, served: Served) -> dict[str, str] | None:
    """Ids of existing objects, for operations that do not remove them."""
    if operation.method == "delete":
        return None
    return {name: known for name, known in served.known.items() if name in operation.path} or None


def is_always_valid(operation: Any) -> bool:
    """True if the request has no part that could be invalid."""
    return not list(operation.iter_parameters()) and not operation.body


def send(cases: Any, served: Served) -> None:
    @settings(
        max_examples=served.examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def check(case: Any) -> None:
        sent = case.call_and_validate(base_url=served.url, headers=served.headers, checks=CHECKS)
        assert sent.status_code not in (401, 429), "nothing was tried"

    check()
