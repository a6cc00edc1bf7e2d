"""The whole stack for a benchmark: a durable Postgres, one shard, a worker, in processes."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import uuid4

import aiohttp
import asyncpg
from msgspec import Raw

from filling import Filling, fill
from processes import Usage, child_of, tree_cpu_s, usage_of
from puller import FILE, QUEUE
from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.core.model import HttpTarget, Job, QueueTarget, RunKey, Target, format_run_id
from wheelsched.daemon.api import LOCAL_TENANT_ID
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.ports import Caller, Registration, Tenant
from wheelsched.schedule.spec import Spec
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.migrate import migrate
from wheelsched.store.schema.retention import Retention

HERE = Path(__file__).parent
SHARD = [sys.executable, "-m", "wheelsched", "shard", "--egress-allow", "127.0.0.0/8"]
LINKED = [*SHARD, "--link", "127.0.0.1:0"]
REGISTERED_AT_ONCE = 10_000
WAIT_LIMIT_S = 900
Number = TypeVar("Number", int, float)
SECRET = "whsec_" + "QUJDREVG" * 4


class Arrival(NamedTuple):
    """A run as its worker saw it."""

    run_id: str
    at_us: int

    @property
    def due_us(self) -> int:
        return int(self.run_id.partition("-")[2])

    @property
    def lateness_us(self) -> int:
        return self.at_us - self.due_us


def repeated(arrivals: Sequence[Arrival]) -> int:
    """How many arrivals were of runs that had arrived before."""
    return len(arrivals) - len({arrival.run_id for arrival in arrivals})


class Server(NamedTuple):
    """A durable Postgres, with a directory for whoever uses it."""

    directory: Path
    url: str
    pid: int


class Stack:
    """A running stack. Times are microseconds since 1970, by the clock of this one machine."""

    def __init__(self, server: Server, database: Database, worker_port: int) -> None:
        self._server = server
        self._database = database
        self._store = PostgresStore(database)
        self._port = worker_port
        self._caller = Caller(LOCAL_TENANT_ID, "benchmark")  # which an API without tokens serves
        self._worker: subprocess.Popen[bytes] | None = None
        self._shards: list[subprocess.Popen[bytes]] = []
        self._probe = ""

    async def make_tenant(self) -> None:
        """Makes a tenant for what will be registered."""
        tenant = Tenant(
            tenant_id=self._caller.tenant_id,
            name="benchmark",
            job_quota=2**31 - 1,
            secrets=(SECRET,),
            created_at_us=now_us(),
        )
        await self._store.tenants.create("benchmark", tenant)

    def start_sink(self) -> None:
        """Starts a worker that is called over HTTP."""
        self._start_worker(HERE / "sink.py", self._port, self._arrivals)

    def start_puller(self, api_url: str, concurrency: int) -> int:
        """Starts a worker that pulls from an API; its process."""
        options = ["--queue", QUEUE, "--url", api_url, "--concurrency", concurrency]
        return self._start_worker("-m", "wheelsched", "worker", "puller:worker", *options)

    async def start_scheduler(self, concurrency: int) -> int:
        """Starts a program that is shard and worker; its process, when it owns everything."""
        process_id = self._start_worker(HERE / "puller.py", self.url, concurrency)
        await self._until_owned(1)
        return process_id

    def _start_worker(self, *command: object) -> int:
        self._worker = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=HERE,
            env={**os.environ, FILE: str(self._arrivals)},
        )
        return self._worker.pid

    async def start_shard(self, command: Sequence[str] = SHARD) -> None:
        """Starts a further shard, and waits until all have their share of everything."""
        self._probe = f"127.0.0.1:{free_port()}"
        options = ["--database-url", self._server.url, "--probe", self._probe]
        self._shards.append(subprocess.Popen([*command, *options]))
        await self._until_owned(len(self._shards))

    async def _until_owned(self, shards: int) -> None:
        # Placement is by chance: no share is far from even.
        least = 256 // shards // 2
        await self._until(
            "WITH shares AS (SELECT count(*) AS owned FROM partitions"
            " WHERE owner IS NOT NULL GROUP BY owner)"
            " SELECT coalesce(sum(owned), 0) = 256 AND count(*) = $1 AND min(owned) >= $2"
            " FROM shares",
            shards,
            least,
        )

    def stop_shard(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """Ends the shard that was started last, and waits until it is gone."""
        shard = self._shards.pop()
        shard.send_signal(sent)
        shard.wait(WAIT_LIMIT_S)

    def kill_shard(self) -> None:
        """Kills the shard that was started last; its parent ends as it did."""
        shard = self._shards.pop()
        os.kill(child_of(shard.pid), signal.SIGKILL)
        shard.wait(WAIT_LIMIT_S)

    async def partitions_of_last(self) -> set[int]:
        """What the shard that was started last owns."""
        rows = await self._database.fetch(
            "SELECT partition FROM partitions JOIN shards ON owner = shard_id"
            " WHERE started_at = (SELECT max(started_at) FROM shards)"
        )
        return {row["partition"] for row in rows}

    async def metrics(self) -> dict[str, float]:
        """What the shard that was started last shows of itself."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session,
            session.get(f"http://{self._probe}/metrics") as response,
        ):
            lines = (await response.text()).splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    async def fill(self, filling: Filling) -> None:
        """Registers many jobs by the database alone."""
        async with self._database.connection() as connection:
            await fill(connection, self._caller.tenant_id, self._port, filling)

    async def until_first_start(self, after_us: int) -> int:
        """Waits for the first run that was started after a time; when that was."""
        first = (
            "SELECT (extract(epoch FROM min(started_at)) * 1e6)::bigint FROM runs"
            " WHERE started_at > timestamptz 'epoch' + $1::bigint * interval '1 microsecond'"
        )
        async with asyncio.timeout(WAIT_LIMIT_S):
            while (found_us := await self._database.fetchval(first, after_us)) is None:
                await asyncio.sleep(0.05)
        return int(found_us)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def database(self) -> Database:
        return self._database

    async def register(
        self, dues_us: Sequence[int], *, batch: int = 1, is_queued: bool = False
    ) -> set[str]:
        """Registers a one-off for each due time, and gives the ids of their runs."""
        target: Target = HttpTarget(url=f"http://127.0.0.1:{self._port}/", batch=batch)
        if is_queued:
            target = QueueTarget(queue=QUEUE)
        expected: set[str] = set()
        for start in range(0, len(dues_us), REGISTERED_AT_ONCE):
            part = dues_us[start : start + REGISTERED_AT_ONCE]
            entries = [self._registration(due_us, target) for due_us in part]
            assert not await self._store.jobs.register(self._caller, entries)
            keys = [RunKey(entry.job.job_id, entry.job.anchor_us) for entry in entries]
            expected |= set(map(format_run_id, keys))
        return expected

    async def until_settled(self, count: int, every_s: float = 1.0) -> int:
        """Waits until the only shard has written the ends of so many runs; when that was."""
        # It is asked, not the database: to look at half a million rows would take what is measured.
        async with asyncio.timeout(WAIT_LIMIT_S):
            while (await self.metrics())['wheelsched_runs_total{state="succeeded"}'] < count:
                await asyncio.sleep(every_s)
        settled_us = now_us()
        ended = await self._database.fetchval("SELECT count(*) FROM runs WHERE state = 'succeeded'")
        assert ended >= count, "the shard has counted ends that are not written"
        return settled_us

    async def until_written(self, count: int) -> None:
        """Waits until the database has the ends of so many runs, where no shard can be asked."""
        await self._until("SELECT count(*) >= $1 FROM runs WHERE state = 'succeeded'", count)

    @property
    def shard_pid(self) -> int:
        """The process of the shard that was started last, below the one that watches it."""
        return child_of(self._shards[-1].pid)

    def shard_usage(self) -> Usage:
        """CPU time and memory of the shard that was started last."""
        return usage_of(self.shard_pid)

    def worker_usage(self) -> Usage:
        """CPU time and memory of the worker."""
        assert self._worker
        return usage_of(self._worker.pid)

    def server_cpu_s(self) -> float:
        """CPU time of everything that is Postgres."""
        return tree_cpu_s(self._server.pid)

    def stop(self) -> list[Arrival]:
        """Stops everything; what arrived at the worker."""
        while self._shards:
            self.stop_shard()
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(WAIT_LIMIT_S)
        lines = self._arrivals.read_text().splitlines() if self._arrivals.exists() else []
        return [Arrival(run_id, int(at_us)) for run_id, at_us in map(str.split, lines)]

    @property
    def _arrivals(self) -> Path:
        return self._server.directory / "arrivals"

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
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not await self._database.fetchval(sql, *arguments):
                await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def running_stack(shards: int = 1, *, has_sink: bool = True) -> AsyncIterator[Stack]:
    with durable_server() as server:
        connection = await asyncpg.connect(server.url)
        await migrate(connection)
        await connection.close()
        config = StoreConfig(url=server.url, role="owner", command_timeout_ms=600_000)
        async with await Database.open(config) as database:
            await Retention(database).make_days_ahead()
            stack = Stack(server, database, free_port())
            try:
                await stack.make_tenant()
                if has_sink:
                    stack.start_sink()
                for _ in range(shards):
                    await stack.start_shard()
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
            process.wait(WAIT_LIMIT_S)
        late_us += sorted(map(int, path.read_text().split()))


@contextlib.contextmanager
def durable_server() -> Iterator[Server]:
    """A Postgres of its own that waits for the disk at each commit, as embedded ones do."""
    directory = Path(tempfile.mkdtemp(prefix="wheelsched-"))
    directory.chmod(0o711)
    try:
        with EmbeddedPostgres.start(EmbeddedConfig(home=directory / "home")) as server:
            pid_file = server.data_directory / "postmaster.pid"
            yield Server(directory, server.url, int(pid_file.read_text().split()[0]))
    finally:
        shutil.rmtree(directory)


def quantile(ordered: Sequence[Number], share: float) -> Number:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def now_us() -> int:
    return time.time_ns() // 1_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
