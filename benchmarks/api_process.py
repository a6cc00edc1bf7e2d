"""The API as a process of its own, and the CPU time that it and the database use."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp

from stack import free_port

API = ["-m", "wheelsched", "api", "--egress-allow", "127.0.0.0/8"]
TICKS = os.sysconf("SC_CLK_TCK")
WAIT_LIMIT_S = 60


class ApiProcess(NamedTuple):
    """A running API."""

    url: str
    process_id: int


@contextlib.asynccontextmanager
async def running_api(
    database_url: str, niceness: int = 0, python: str = sys.executable
) -> AsyncIterator[ApiProcess]:
    """An API of this machine's programs, ready; of another installation with its `python`."""
    port = free_port()
    address = ["--listen", f"127.0.0.1:{port}", "--log-level", "warning"]
    api_command = [python, *API, "--database-url", database_url, *address]
    # `nice` becomes what it starts
    async with running_server(["nice", "-n", str(niceness), *api_command], port) as api:
        yield api


@contextlib.asynccontextmanager
async def running_server(command: Sequence[str], port: int) -> AsyncIterator[ApiProcess]:
    """A process that serves on a port, ready."""
    process = subprocess.Popen(command)
    try:
        api = ApiProcess(f"http://127.0.0.1:{port}", process.pid)
        await _until_ready(api.url)
        yield api
    finally:
        process.terminate()
        process.wait(WAIT_LIMIT_S)


async def _until_ready(url: str) -> None:
    async with asyncio.timeout(WAIT_LIMIT_S), aiohttp.ClientSession(url) as client:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with client.get("/readyz") as answer:
                    if answer.ok:
                        return
            await asyncio.sleep(0.1)


class Spent(NamedTuple):
    """Seconds that have passed, and CPU seconds of this process, the API and the database.

    On a machine with neighbours CPU time tells what wall time does not.
    """

    wall: float
    client: float
    api: float
    server: float

    @classmethod
    def now(cls, api: ApiProcess, postmaster: int) -> Self:
        return cls(
            time.perf_counter(),
            time.process_time(),
            _cpu_seconds(api.process_id),
            sum(map(_cpu_seconds, [postmaster, *_children(postmaster)])),
        )

    def since(self, before: Self) -> Self:
        pairs = zip(self, before, strict=True)
        return type(self)(*(late - early for late, early in pairs))

    def plus(self, other: Self) -> Self:
        return type(self)(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def _cpu_seconds(process_id: int) -> float:
    """Of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:  # it has ended meanwhile, or the system has no such file
        return 0
    return sum(map(int, fields[11:15])) / TICKS


def _children(process_id: int) -> list[int]:
    try:
        listed = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    except OSError:
        return []
    return list(map(int, listed.split()))
