"""Requests that the OpenAPI document allows, and many that it does not: none breaks the server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)
from tests.api import serve

from wheelsched.testing import MemoryStore

CHECKS: list[Any] = [not_a_server_error, content_type_conformance, response_schema_conformance]


class Served(NamedTuple):
    url: str
    known: dict[str, str]  # ids of what is there


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """An API that has a loop and a thread of its own: the requests of this file are blocking."""
    started: list[Served] = []
    is_ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        store = MemoryStore(lambda: time.time_ns() // 1_000)
        async with serve(store, store, auth="loopback") as api:
            job_id = (await api.create())["job_id"]
            run_id = (await api.post(f"/jobs/{job_id}/trigger")).body["run_ids"][0]
            started.append(Served(api.url, {"job_id": job_id, "run_id": run_id}))
            is_ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert is_ready.wait(60)
    yield started[0]
    stop.set()
    thread.join()


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_the_server(served: Served, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    results: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in results]
    assert len(operations) > 30
    for operation in operations:
        if not (mode is GenerationMode.NEGATIVE and is_always_valid(operation)):
            known = known_parameters(operation, served) if mode is GenerationMode.POSITIVE else None
            send(operation.as_strategy(generation_mode=mode, path_parameters=known), served.url)


def known_parameters(operation: Any, served: Served) -> dict[str, str] | None:
    """Ids that are there, for whatever does not remove them."""
    if operation.method == "delete":
        return None
    return {name: known for name, known in served.known.items() if name in operation.path} or None


def is_always_valid(operation: Any) -> bool:
    """Whether nothing can be wrong with a request, because it has no part that could be."""
    return not list(operation.iter_parameters()) and not operation.body


def send(cases: Any, url: str) -> None:
    @settings(
        max_examples=10,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def check(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS)

    check()
