"""The whole stack for a benchmark: a durable Postgres, one shard, a worker, in processes."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import asyncpg
from msgspec import Raw

from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.core.model import Job, RunKey, Target, format_run_id
from wheelsched.core.spec import Spec
from wheelsched.ports import Caller, Registration, Tenant
from wheelsched.store.database import Database
from wheelsched.store.embedded import EmbeddedPostgres
from wheelsched.store.migrate import migrate
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.retention import Retention

HERE = Path(__file__).parent
SHARD = [sys.executable, "-m", "wheelsched", "shard", "--egress-allow", "127.0.0.0/8"]
REGISTERED_AT_ONCE = 10_000
PATIENCE_S = 900
SECRET = "whsec_" + "QUJDREVG" * 4


class Arrival(NamedTuple):
    """A run as its worker saw it."""

    run_id: str
    at_us: int

    @property
    def lateness_us(self) -> int:
        return self.at_us - int(self.run_id.partition("-")[2])


def repeated(arrivals: Sequence[Arrival]) -> int:
    """How many arrivals were of runs that had arrived before."""
    return len(arrivals) - len({arrival.run_id for arrival in arrivals})


class Usage(NamedTuple):
    """What a process has used."""

    cpu_s: float
    peak_mib: float


class Stack:
    """A running stack. Times are microseconds since 1970, by the clock of this one machine."""

    def __init__(self, directory: Path, url: str, database: Database, worker_port: int) -> None:
        self._directory = directory
        self.url = url
        self._database = database
        self._store = PostgresStore(database)
        self._port = worker_port
        self._caller = Caller(uuid4(), "benchmark")
        self._sink: subprocess.Popen[bytes] | None = None
        self._shard: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Starts worker and shard, and waits until the shard owns everything."""
        tenant = Tenant(
            tenant_id=self._caller.tenant_id,
            name="benchmark",
            job_quota=2**31 - 1,
            secrets=(SECRET,),
            created_at_us=now_us(),
        )
        await self._store.tenants.create("benchmark", tenant)
        self._sink = subprocess.Popen(
            [sys.executable, HERE / "sink.py", str(self._port), self._directory / "arrivals"]
        )
        self._shard = subprocess.Popen([*SHARD, "--database-url", self.url])
        await self._until("SELECT count(owner) = 256 FROM partitions")

    async def register(self, dues_us: Sequence[int], *, batch: int) -> set[str]:
        """Registers a one-off for each due time, and gives the ids of their runs."""
        target = Target(url=f"http://127.0.0.1:{self._port}/", batch=batch)
        expected: set[str] = set()
        for start in range(0, len(dues_us), REGISTERED_AT_ONCE):
            part = dues_us[start : start + REGISTERED_AT_ONCE]
            entries = [self._registration(due_us, target) for due_us in part]
            assert not await self._store.jobs.register(self._caller, entries)
            keys = [RunKey(entry.job.job_id, entry.job.anchor_us) for entry in entries]
            expected |= set(map(format_run_id, keys))
        return expected

    async def until_settled(self, count: int) -> int:
        """Waits until so many runs have ended; when that was."""
        await self._until(
            "SELECT count(*) >= $1 FROM runs WHERE state NOT IN ('armed', 'running', 'retrying')",
            count,
        )
        settled_us: int = await self._database.fetchval("SELECT max(finished_at) FROM runs")
        return max(settled_us, now_us())

    async def latenesses_us(self, since_us: int = 0, until_us: int = 2**52) -> list[int]:
        """How late each run that was due then went to the socket, as the history has it."""
        rows = await self._database.fetch(
            "SELECT lateness_us FROM runs WHERE lateness_us IS NOT NULL"
            " AND due_at >= $1 AND due_at < $2 ORDER BY 1",
            since_us,
            until_us,
        )
        return [row["lateness_us"] for row in rows]

    def shard_usage(self) -> Usage:
        """CPU time and the largest resident size of the shard."""
        assert self._shard
        status = Path(f"/proc/{self._shard.pid}/status").read_text()
        stat = Path(f"/proc/{self._shard.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        peak_kib = next(line.split()[1] for line in status.splitlines() if "VmHWM" in line)
        return Usage((int(stat[11]) + int(stat[12])) / 100, int(peak_kib) / 1024)

    def stop(self) -> list[Arrival]:
        """Stops everything; what arrived at the worker."""
        for process in (self._shard, self._sink):
            if process is not None:
                process.terminate()
                process.wait(PATIENCE_S)
        lines = (self._directory / "arrivals").read_text().splitlines()
        return [Arrival(run_id, int(at_us)) for run_id, at_us in map(str.split, lines)]

    def _registration(self, due_us: int, target: Target) -> Registration:
        job_id = uuid4()
        expression = datetime.fromtimestamp(due_us / 1e6, UTC).isoformat(timespec="milliseconds")
        job = Job(
            job_id=job_id,
            tenant_id=self._caller.tenant_id,
            name=job_id.hex,
            schedule=Raw(b'"%s"' % expression.encode()),
            spec=Spec(kind="at", expression=expression),
            anchor_us=due_us,
            target=target,
            payload=Raw(b'{"report": "weekly"}'),
            created_at_us=due_us,
            updated_at_us=due_us,
        )
        return Registration(job, due_us)

    async def _until(self, sql: str, *arguments: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await self._database.fetchval(sql, *arguments):
                await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def running_stack() -> AsyncIterator[Stack]:
    with durable_server() as (directory, url):
        connection = await asyncpg.connect(url)
        await migrate(connection)
        await connection.close()
        config = StoreConfig(url=url, role="owner", command_timeout_ms=600_000)
        async with await Database.open(config) as database:
            await Retention(database).make_days_ahead()
            stack = Stack(directory, url, database, free_port())
            await stack.start()
            try:
                yield stack
            finally:
                stack.stop()


@contextlib.contextmanager
def measured_floor() -> Iterator[list[int]]:
    """Measures the machine's own lateness meanwhile; filled when it is left, sorted."""
    late_us: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "floor"
        process = subprocess.Popen([sys.executable, HERE / "floor.py", path])
        try:
            yield late_us
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
        late_us += sorted(map(int, path.read_text().split()))


@contextlib.contextmanager
def durable_server() -> Iterator[tuple[Path, str]]:
    directory = Path(tempfile.mkdtemp(prefix="wheelsched-"))
    directory.chmod(0o711)
    try:
        with EmbeddedPostgres.start(EmbeddedConfig(home=directory / "home")) as server:
            yield directory, server.url
    finally:
        shutil.rmtree(directory)


def quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def now_us() -> int:
    return time.time_ns() // 1_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
