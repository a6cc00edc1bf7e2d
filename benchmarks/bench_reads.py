"""Reads over REST against a bare loop of asyncpg and msgspec on the same rows, in one run.

make bench ONLY=reads

A durable Postgres with 100,000 jobs, the API in a process of its own, and 200 connections that each
ask again as soon as they are answered: for a page of 100 jobs, or for one job. The floor reads the
same rows as the same role in the same kind of transaction, with as many connections to the database
as the API has, and encodes what it read; nothing is routed, authenticated or compiled. Both take
turns. What counts is CPU time: of the API for each answer, of this process for each read of the
floor. Wall time depends on who else uses the machine.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from random import Random

import asyncpg
import msgspec
import pytest

from api_process import ApiProcess, Spent, running_api
from filling import Filling, fill
from report import Record, Target
from stack import durable_server, now_us, quantile
from wheelsched.config import StoreConfig
from wheelsched.daemon.api import LOCAL_TENANT_ID
from wheelsched.ports import Caller, JobFilter
from wheelsched.store.database import Database
from wheelsched.store.jobs import QUERIES
from wheelsched.store.migrate import migrate
from wheelsched.store.postgres import PostgresStore

OURS = "api"
FLOOR = "asyncpg and msgspec"
JOBS = int(os.environ.get("WHEELSCHED_BENCH_JOBS", "100000"))
SECONDS = float(os.environ.get("WHEELSCHED_BENCH_SECONDS", "3"))  # of a turn
ROUNDS = int(os.environ.get("WHEELSCHED_BENCH_ROUNDS", "3"))
CLIENTS = 200
PAGE = 100
CONNECTIONS = StoreConfig(url="", role="api").connections
EVERY = "1h"
SPAN_US = 3_600_000_000
CALLER = Caller(LOCAL_TENANT_ID, "benchmark")

TARGETS = [
    Target("a page of 100 within 2× of the floor's CPU", "page of 100, CPU", JOBS, FLOOR, 0.5),
    Target("one job within 5× of the floor's CPU", "one job, CPU", JOBS, FLOOR, 0.2),
]


class Client:
    """Connections that ask for one of some paths, over and over."""

    def __init__(self, api: ApiProcess) -> None:
        _, _, port = api.url.rpartition(":")
        self._port = int(port)
        self._random = Random(1)

    async def ask(self, paths: list[str], seconds: float) -> list[float]:
        """How long each answer took."""
        took: list[float] = []
        until = time.perf_counter() + seconds
        await asyncio.gather(*(self._ask_until(until, paths, took) for _ in range(CLIENTS)))
        return sorted(took)

    async def _ask_until(self, until: float, paths: list[str], took: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while (begun := time.perf_counter()) < until:
                path = self._random.choice(paths)
                writer.write(f"GET /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                assert head.startswith("http/1.1 200"), head
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length))
                took.append(time.perf_counter() - begun)
        finally:
            writer.close()


class Floor:
    """The same rows, read and encoded."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._random = Random(1)

    async def page(self) -> None:
        await self._read(QUERIES["list_jobs"], "", None, None, "{}", PAGE)

    async def one(self, job_ids: list[str]) -> None:
        await self._read(QUERIES["get_job"], self._random.choice(job_ids))

    async def _read(self, sql: str, *arguments: object) -> None:
        async with self._database.tenant(CALLER) as connection:
            rows = await connection.fetch(sql, *arguments)
        items = [{**row, "definition": msgspec.Raw(row["definition"])} for row in rows]
        assert msgspec.json.encode({"items": items})


class Side:
    """One thing to read in one way: how many were read, and the CPU time that they took."""

    def __init__(self, workload: str, name: str) -> None:
        self.workload, self.name = workload, name
        self.count, self.cpu_s, self.wall_s = 0, 0.0, 0.0
        self.took: list[float] = []

    def add(self, count: int, cpu_s: float, wall_s: float) -> None:
        self.count += count
        self.cpu_s += cpu_s
        self.wall_s += wall_s

    def report(self, record: Record) -> None:
        record.add(f"{self.workload}, CPU", self.name, JOBS, self.cpu_s / self.count * 1e9)
        record.add(self.workload, self.name, JOBS, self.count / self.wall_s, "1/s")
        if self.took:
            took = sorted(self.took)
            record.add(f"{self.workload}, p50", self.name, JOBS, quantile(took, 0.5) * 1e9)
            record.add(f"{self.workload}, p99", self.name, JOBS, quantile(took, 0.99) * 1e9)


async def ask(side: Side, client: Client, api: ApiProcess, paths: list[str]) -> None:
    """A turn of the API."""
    before = Spent.now(api, 0)
    took = await client.ask(paths, SECONDS)
    spent = Spent.now(api, 0).since(before)
    side.add(len(took), spent.api, spent.wall)
    side.took += took


async def read(side: Side, once: Callable[[], Awaitable[None]]) -> None:
    """A turn of the floor, with as many connections as the API has."""
    begun, cpu_s, count = time.perf_counter(), time.process_time(), 0

    async def repeat() -> None:
        nonlocal count
        while time.perf_counter() - begun < SECONDS:
            await once()
            count += 1

    await asyncio.gather(*(repeat() for _ in range(CONNECTIONS)))
    side.add(count, time.process_time() - cpu_s, time.perf_counter() - begun)


@pytest.mark.timeout(900)
async def test_reads(record: Record) -> None:
    record.targets = TARGETS
    page, one = "page of 100", "one job"
    sides = {(what, who): Side(what, who) for what in (page, one) for who in (OURS, FLOOR)}
    with durable_server() as server:
        connection = await asyncpg.connect(server.url)
        await migrate(connection)
        await connection.close()
        async with running_api(server.url) as api:
            owner = StoreConfig(url=server.url, role="owner", command_timeout_ms=600_000)
            async with await Database.open(owner) as database:
                await fill(database, CALLER.tenant_id, 9, Filling(JOBS, EVERY, now_us(), SPAN_US))
            async with await Database.open(StoreConfig(url=server.url, role="api")) as database:
                client, floor = Client(api), Floor(database)
                jobs = await PostgresStore(database).jobs.list_jobs(CALLER, JobFilter(), PAGE)
                job_ids = [str(job.job_id) for job in jobs]
                paths = {page: [f"/jobs?limit={PAGE}"], one: [f"/jobs/{each}" for each in job_ids]}
                once = {page: floor.page, one: lambda: floor.one(job_ids)}
                for _ in range(ROUNDS):
                    for what in (page, one):
                        await ask(sides[what, OURS], client, api, paths[what])
                        await read(sides[what, FLOOR], once[what])
    for side in sides.values():
        side.report(record)
