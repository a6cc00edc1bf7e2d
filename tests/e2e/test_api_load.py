"""Many clients of the API while runs fire, on real processes: nobody fails, nothing is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.e2e.test_cli_roles import role
from tests.fleet import Fleet, fleet_on, iso
from tests.ports import reserved_port
from tests.stack import GENEROUS_S
from tests.waiting import until

from wheelsched.values.duration import SECOND

pytestmark = pytest.mark.proof  # many clients for seconds

CLIENTS = 200
KEPT = 3  # of each client's jobs
RUNS = 200
JOBS = "/api/v1/jobs"


@pytest.fixture
async def fleet(database: str) -> AsyncIterator[Fleet]:
    async with fleet_on(database) as fleet:
        yield fleet


@pytest.fixture
async def api(database: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an API process; each request that waits has a connection of its own."""
    connector = aiohttp.TCPConnector(limit=CLIENTS)
    store_retry = aiohttp.ClientTimeout(total=GENEROUS_S)
    with reserved_port() as port, role("api", *options_on(port, database)):
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{port}", connector=connector, timeout=store_retry
        ) as session:
            await until(lambda: is_ready(session))
            yield session


def options_on(port: int, database: str) -> tuple[str, ...]:
    listen = ("--listen", f"127.0.0.1:{port}")
    return (*listen, "--database-url", database, "--log-level", "error")


async def is_ready(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get("/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


class Client:
    """One of many, with jobs of its own."""

    def __init__(self, number: int, session: aiohttp.ClientSession) -> None:
        self._number = number
        self._session = session
        self.statuses: Counter[int] = Counter()

    async def work(self) -> None:
        made = await self._ask("POST", JOBS, self._document("one"))
        job = f"{JOBS}/{made.get('job_id')}"
        await self._ask("GET", job)
        await self._ask("PATCH", job, {"priority": 7})
        kept = [self._document(f"kept-{each}") for each in range(KEPT)]
        assert (await self._ask("POST", f"{JOBS}/bulk", kept)).get("registered") == KEPT
        await self._ask("GET", f"{JOBS}?limit=5")
        await self._ask("GET", f"{job}/next")
        await self._ask("POST", f"{job}/pause")
        await self._ask("DELETE", job)

    def _document(self, name: str) -> dict[str, object]:
        return {
            "name": f"client-{self._number}-{name}",
            "schedule": "2031-01-15T08:00:00Z",
            "target": {"url": "https://example.org/hooks/report"},
        }

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        async with self._session.request(method, path, json=body) as response:
            self.statuses[response.status] += 1
            answer: dict[str, Any] = await response.json(content_type=None)
            return answer


async def names(session: aiohttp.ClientSession) -> list[str]:
    """The names of all jobs that the API lists, page by page."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": "200"} | ({} if cursor is None else {"cursor": cursor})
        async with session.get(JOBS, params=query) as answer:
            page = await answer.json()
        found += [job["name"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def test_many_clients_while_runs_fire(fleet: Fleet, api: aiohttp.ClientSession) -> None:
    await fleet.start("a")
    start_us = await fleet.now_us() + 2 * SECOND
    step_us = 5 * SECOND // RUNS
    one_offs = await fleet.register([iso(start_us + each * step_us) for each in range(RUNS)])
    clients = [Client(number, api) for number in range(CLIENTS)]
    async with asyncio.timeout(GENEROUS_S):
        await asyncio.gather(*(client.work() for client in clients))
    await fleet.until_settled(one_offs, RUNS)

    statuses: Counter[int] = sum((client.statuses for client in clients), Counter())
    assert statuses == {201: CLIENTS, 200: 7 * CLIENTS}
    kept = {f"client-{number}-kept-{each}" for number in range(CLIENTS) for each in range(KEPT)}
    listed = await names(api)
    assert set(listed) >= kept
    assert len(listed) == len(set(listed))
    runs = await fleet.runs(one_offs)
    assert {run.run_id for run in runs} == fleet.arrivals.keys()
    assert set(fleet.arrivals.values()) == {1}
