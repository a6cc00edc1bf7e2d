"""Reads over REST against bare aiohttp and asyncpg on the same rows, in one run.

make bench ONLY=reads
WHEELSCHED_BENCH_BEFORE=<another checkout>/.venv/bin/python make bench ONLY=reads

A durable Postgres with 100,000 jobs, the API in a process of its own, and 200 connections that each
ask again as soon as they are answered: for the first page of 100 jobs, for all pages one after the
other (more than the API keeps encoded), for one of 100 jobs, or for any job. There are two floors,
each a process like the API (`read_floor.py`): one answers with the same bytes, the other fetches
the same rows before that. All sides take turns. What counts is the CPU time of the process for each
answer. Wall time depends on who else uses the machine.

With `WHEELSCHED_BENCH_BEFORE` the API of that installation takes its turns too, on a database of
its own on the same server.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from random import Random
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg
import msgspec
import pytest

from api_process import ApiProcess, Spent, running_api, running_server
from filling import Filling, fill
from report import Record, Target
from stack import HERE, Server, durable_server, free_port, now_us, quantile
from wheelsched.daemon.api import LOCAL_TENANT_ID

OURS = "api"
BEFORE = "before"
BYTES = "aiohttp"
FETCH = "aiohttp and asyncpg"
BEFORE_PYTHON = os.environ.get("WHEELSCHED_BENCH_BEFORE")
JOBS = int(os.environ.get("WHEELSCHED_BENCH_JOBS", "100000"))
SECONDS = float(os.environ.get("WHEELSCHED_BENCH_SECONDS", "3"))  # of a turn
ROUNDS = int(os.environ.get("WHEELSCHED_BENCH_ROUNDS", "3"))
CLIENTS = 200
PAGE = 100
EVERY = "1h"
SPAN_US = 3_600_000_000

FIRST_PAGE, ALL_PAGES, FEW_JOBS, ALL_JOBS = WORKLOADS = (
    "first page of 100",
    "all pages of 100",
    "one of 100 jobs",
    "any job",
)
TARGETS = [
    Target("a page read again for half of the floor's CPU", f"{FIRST_PAGE}, CPU", JOBS, FETCH, 2),
    Target("one job within 1.2× of the floor's CPU", f"{FEW_JOBS}, CPU", JOBS, FETCH, 1 / 1.2),
    Target("a page for a tenth of the CPU of before", f"{FIRST_PAGE}, CPU", JOBS, BEFORE, 10),
    Target("one job for a third of the CPU of before", f"{FEW_JOBS}, CPU", JOBS, BEFORE, 3),
]


class Side:
    """One thing to read in one way: how many were read, and the CPU time that they took."""

    def __init__(self, workload: str, name: str) -> None:
        self.workload, self.name = workload, name
        self.count, self.cpu_s, self.server_s, self.wall_s = 0, 0.0, 0.0, 0.0
        self.took: list[float] = []

    def report(self, record: Record) -> None:
        record.add(f"{self.workload}, CPU", self.name, JOBS, self.cpu_s / self.count * 1e9)
        record.add(f"{self.workload}, server", self.name, JOBS, self.server_s / self.count * 1e9)
        record.add(self.workload, self.name, JOBS, self.count / self.wall_s, "1/s")
        took = sorted(self.took)
        record.add(f"{self.workload}, p50", self.name, JOBS, quantile(took, 0.5) * 1e9)
        record.add(f"{self.workload}, p99", self.name, JOBS, quantile(took, 0.99) * 1e9)


class Api:
    """An API with its jobs, and the paths of each workload."""

    def __init__(self, api: ApiProcess, pages: list[str], job_ids: list[str]) -> None:
        self._api = api
        few, many = job_ids[:PAGE], Random(1).sample(job_ids, len(job_ids))
        self._read = (pages, job_ids)
        self._paths: dict[str, Iterator[str]] = {
            FIRST_PAGE: cycle(pages[:1]),
            ALL_PAGES: cycle(pages),
            FEW_JOBS: cycle(f"/jobs/{each}" for each in few),
            ALL_JOBS: cycle(f"/jobs/{each}" for each in many),
        }

    @classmethod
    async def read(cls, api: ApiProcess) -> "Api":
        """Goes through the whole list once."""
        pages, job_ids = [f"/jobs?limit={PAGE}"], []
        async with aiohttp.ClientSession(api.url) as client:
            while True:
                async with client.get(f"/api/v1{pages[-1]}") as answer:
                    page = msgspec.json.decode(await answer.read())
                job_ids += [job["job_id"] for job in page["items"]]
                if page["next_cursor"] is None:
                    return cls(api, pages, job_ids)
                pages.append(f"/jobs?limit={PAGE}&cursor={page['next_cursor']}")

    def served_by(self, other: ApiProcess) -> "Api":
        """The same paths, of another process."""
        return Api(other, *self._read)

    async def write_bodies(self, directory: Path) -> None:
        """Writes a page and a job, as the API answers, for `read_floor.py`."""
        pages, job_ids = self._read
        async with aiohttp.ClientSession(self._api.url) as client:
            for name, path in (("page", pages[0]), ("job", f"/jobs/{job_ids[0]}")):
                async with client.get(f"/api/v1{path}") as answer:
                    (directory / name).write_bytes(await answer.read())

    async def take_turn(self, side: Side, postmaster: int) -> None:
        before = Spent.now(self._api, postmaster)
        until = time.perf_counter() + SECONDS
        took: list[float] = []
        paths = self._paths[side.workload]
        await asyncio.gather(*(self._ask_until(until, paths, took) for _ in range(CLIENTS)))
        spent = Spent.now(self._api, postmaster).since(before)
        side.count += len(took)
        side.cpu_s += spent.api
        side.server_s += spent.server
        side.wall_s += spent.wall
        side.took += took

    async def _ask_until(self, until: float, paths: Iterator[str], took: list[float]) -> None:
        _, _, port = self._api.url.rpartition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        try:
            while (begun := time.perf_counter()) < until:
                request = f"GET /api/v1{next(paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                writer.write(request.encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                assert head.startswith("http/1.1 200"), head
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length))
                took.append(time.perf_counter() - begun)
        finally:
            writer.close()


def with_database(url: str, name: str) -> str:
    """The address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@asynccontextmanager
async def filled_api(server: Server, name: str, python: str) -> AsyncIterator[Api]:
    """The API of an installation, on a database of its own with all jobs."""
    administration = await asyncpg.connect(server.url)
    await administration.execute(f"CREATE DATABASE {name}")
    await administration.close()
    url = with_database(server.url, name)
    migrate = [python, "-m", "wheelsched", "db", "migrate", "--database-url", url]
    await asyncio.to_thread(subprocess.run, migrate, check=True, stdout=subprocess.DEVNULL)
    async with running_api(url, python=python) as api:
        owner = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
        await fill(owner, LOCAL_TENANT_ID, 9, Filling(JOBS, EVERY, now_us(), SPAN_US))
        await owner.close()
        yield await Api.read(api)


def running_floor(directory: Path, *database: str) -> AbstractAsyncContextManager[ApiProcess]:
    """A floor, with or without a database."""
    port = free_port()
    command = [sys.executable, str(HERE / "read_floor.py"), str(port), str(directory), *database]
    return running_server(command, port)


@pytest.mark.timeout(900)
async def test_reads(record: Record) -> None:
    record.targets = TARGETS
    sides: dict[tuple[str, str], Side] = {}
    async with AsyncExitStack() as stack:
        server = stack.enter_context(durable_server())
        apis = {OURS: await stack.enter_async_context(filled_api(server, "ours", sys.executable))}
        if BEFORE_PYTHON is not None:
            before = filled_api(server, "before", BEFORE_PYTHON)
            apis[BEFORE] = await stack.enter_async_context(before)
        await apis[OURS].write_bodies(server.directory)
        for name, database in ((BYTES, ()), (FETCH, (with_database(server.url, "ours"),))):
            floor = running_floor(server.directory, *database)
            apis[name] = apis[OURS].served_by(await stack.enter_async_context(floor))
        for _ in range(ROUNDS):
            for workload in WORKLOADS:
                for name, api in apis.items():
                    side = sides.setdefault((workload, name), Side(workload, name))
                    await api.take_turn(side, server.pid)
    for side in sides.values():
        side.report(record)
