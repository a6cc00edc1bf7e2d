from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from wheelsched.core.model import RunState
from wheelsched.metrics import shard_registry
from wheelsched.probe import status_app
from wheelsched.testing import VirtualClock
from wheelsched.vitals import Vitals


@pytest.fixture
def vitals() -> Vitals:
    return Vitals()


@pytest.fixture
async def client(vitals: Vitals) -> AsyncIterator[TestClient[Request, Application]]:
    clock = VirtualClock()
    app = status_app(shard_registry(vitals, clock), lambda: vitals.missing(0))
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_healthz_does_not_depend_on_readiness(
    client: TestClient[Request, Application],
) -> None:
    answer = await client.get("/healthz")
    assert (answer.status, await answer.json()) == (200, {"alive": True})


async def test_readyz_lists_what_is_missing(
    client: TestClient[Request, Application], vitals: Vitals
) -> None:
    answer = await client.get("/readyz")
    assert answer.status == 503
    assert await answer.json() == {"ready": False, "missing": ["schema", "lease", "load"]}

    vitals.store.is_schema_current = True
    vitals.store.refreshed_at_us = 0
    answer = await client.get("/readyz")
    assert (answer.status, await answer.json()) == (503, {"ready": False, "missing": ["lease"]})

    vitals.ownership.trusted_until_us = 1
    answer = await client.get("/readyz")
    assert (answer.status, await answer.json()) == (200, {"ready": True, "missing": []})


async def test_metrics_are_plain_text_unless_openmetrics_is_accepted(
    client: TestClient[Request, Application], vitals: Vitals
) -> None:
    vitals.runs.entered[RunState.DEAD] = 5
    answer = await client.get("/metrics")
    assert answer.content_type == "text/plain"
    assert 'wheelsched_runs_total{state="dead"} 5.0' in (await answer.text()).splitlines()

    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = await client.get("/metrics", headers=wanted)
    assert answer.content_type == "application/openmetrics-text"
    assert (await answer.text()).endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_callback_is_refused(client: TestClient[Request, Application], path: str) -> None:
    answer = await client.get(path, headers={"webhook-id": "1"})
    assert answer.status == 403
