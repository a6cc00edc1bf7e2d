"""The store against the bare statements that it is made of, in one run.

make bench ONLY=store

Durable commits, batches of 1,000, one connection. The store and a bare loop of asyncpg, which
sends the same statements with arguments made beforehand, take turns batch by batch: whatever
else the machine does hits both. A full run is armed and settled. The sizes are small by default;
WHEELSCHED_BENCH_TIMERS=2000000 WHEELSCHED_BENCH_RUNS=100000 are those that count.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec import Raw

from report import Record, Target
from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.core.model import HttpTarget as JobTarget
from wheelsched.core.model import Job, RunKey, RunState
from wheelsched.core.partition import PARTITIONS
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.ports import (
    Caller,
    Claim,
    ClaimedRun,
    Ending,
    Lease,
    Registration,
    Settled,
    Tenant,
)
from wheelsched.schedule.spec import Spec
from wheelsched.store.connections.database import PLANNING, Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.migrate import migrate

QUERIES = load_queries("timers.sql") | load_queries("outcomes.sql")
OURS = "store"
TIMERS = int(os.environ.get("WHEELSCHED_BENCH_TIMERS", "400000"))
RUNS = int(os.environ.get("WHEELSCHED_BENCH_RUNS", "40000"))
BATCH = 1_000
REGISTERED = 10_000
HORIZON = 167_000
DUE = datetime(2027, 1, 15, 8, tzinfo=UTC)
DUE_US = int(DUE.timestamp()) * 1_000_000
MINUTE_US = 60_000_000
TENANT = uuid4()
TICKS = os.sysconf("SC_CLK_TCK")

TARGETS = [
    Target("full run vs bare statements", "full run", RUNS, "bare", 0.8),
    Target("horizon load vs bare COPY", "load, a timer", HORIZON, "bare", 0.8),
]

# The hot timers are due in one second, the horizon's in the ten minutes after, the rest later.
FILL = """
    INSERT INTO timers
    SELECT job_id, get_byte(sha256(uuid_send(job_id)), 0), 1, $2::timestamptz + CASE
        WHEN n <= $3 THEN interval '0'
        WHEN n <= $4 THEN interval '1 minute' + n * interval '1 millisecond'
        ELSE interval '1 day' + n * interval '1 millisecond'
    END
    FROM (SELECT gen_random_uuid() AS job_id, n FROM generate_series(1, $1) AS n) AS jobs
"""


@dataclass
class Side:
    """What one of the two has used so far."""

    name: str
    backend: int
    runs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    program_cpu: float = 0
    server_cpu: float = 0
    wal_bytes: int = 0

    def server_seconds(self) -> float:
        """CPU time of the server's process; 0 where /proc does not tell."""
        try:
            fields = Path(f"/proc/{self.backend}/stat").read_text().rsplit(") ", 1)[1].split()
        except OSError:
            return 0
        return (int(fields[11]) + int(fields[12])) / TICKS

    async def measure(self, step: str, work: Callable[[], Awaitable[None]]) -> None:
        cpu, server, begun = time.process_time(), self.server_seconds(), time.perf_counter()
        await work()
        self.seconds[step] = self.seconds.get(step, 0) + time.perf_counter() - begun
        self.program_cpu += time.process_time() - cpu
        self.server_cpu += self.server_seconds() - server

    def nanoseconds(self, *steps: str) -> float:
        """Of each run in these steps."""
        return sum(self.seconds[step] for step in steps) / self.runs * 1e9


class Bare:
    """A loop of asyncpg: arguments made beforehand, answers not looked at."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", lease: Lease) -> None:
        self.connection = connection
        self.lease = lease

    async def send(self, name: str, arguments: list[object]) -> None:
        await self.connection.fetchrow(QUERIES[name], *arguments)

    def arm_arguments(self, job_ids: list[UUID], first: int) -> list[object]:
        count = len(job_ids)
        tokens = list(range(first, first + count))
        following = [DUE + timedelta(minutes=1)] * count
        return [
            *(self.lease.shard_id, self.lease.fence, job_ids, [DUE] * count, [1] * count),
            *(following, [TENANT] * count, tokens),
        ]

    def settle_arguments(self, job_ids: list[UUID], first: int) -> list[object]:
        count = len(job_ids)
        tokens = list(range(first, first + count))
        return [
            *(job_ids, tokens, [1], [count], [DUE]),
            *([DUE], [DUE], [2_000], [200]),
        ]


class Through:
    """The same through the store: from and to the structs that a shard has."""

    def __init__(self, store: PostgresStore, lease: Lease) -> None:
        self.store = store
        self.lease = lease

    async def arm(self, job_ids: list[UUID], first: int) -> None:
        claims = [
            Claim(
                job_id=job_id,
                tenant_id=TENANT,
                version=1,
                due_us=DUE_US,
                next_due_us=DUE_US + MINUTE_US,
                runs=(ClaimedRun(DUE_US, token),),
            )
            for token, job_id in enumerate(job_ids, first)
        ]
        assert not await self.store.timers.arm(self.lease, claims)

    async def settle(self, job_ids: list[UUID], first: int) -> None:
        ending = Ending(
            state=RunState.SUCCEEDED,
            started_at_us=DUE_US,
            finished_at_us=DUE_US,
            lateness_us=2_000,
            http_status=200,
        )
        settled = [
            Settled(RunKey(job_id, DUE_US), token, ending)
            for token, job_id in enumerate(job_ids, first)
        ]
        assert not await self.store.runs.settle(settled)


async def bench_runs(
    url: str, store: PostgresStore, lease: Lease, database: Database
) -> list[Side]:
    """Arms and settles the hot second, each batch by one of the two."""
    settings = {"search_path": "wheelsched", "role": "wheelsched_shard", **PLANNING["shard"]}
    connection = await asyncpg.connect(url, server_settings=settings | {"jit": "off"})
    bare, through = Bare(connection, lease), Through(store, lease)
    async with database.connection() as pooled:
        sides = [
            Side("bare", connection.get_server_pid()),
            Side("store", pooled.get_server_pid()),
        ]
    rows = await connection.fetch("SELECT job_id FROM timers WHERE due_at = $1 ORDER BY 1", DUE)
    batches = [
        [row["job_id"] for row in rows[start : start + BATCH]]
        for start in range(0, len(rows) - BATCH + 1, BATCH)
    ]
    for step in ("arm", "settle"):
        for number, job_ids in enumerate(batches):
            side = sides[number % 2]
            first = (1 << 32) + number * BATCH
            before = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
            match side.name, step:
                case "bare", "arm":
                    work = partial(bare.send, "arm", bare.arm_arguments(job_ids, first))
                case "bare", _:
                    arguments = bare.settle_arguments(job_ids, first)
                    work = partial(bare.send, "settle_successes", arguments)
                case _, "arm":
                    work = partial(through.arm, job_ids, first)
                case _:
                    work = partial(through.settle, job_ids, first)
            await side.measure(step, work)
            side.wal_bytes += await connection.fetchval(
                "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::bigint", before
            )
            side.runs += len(job_ids) if step == "arm" else 0
    await connection.close()
    return sides


async def bench_load(url: str, store: PostgresStore) -> dict[str, float]:
    """Loads a horizon, the best of seven by each way, in turns: nanoseconds for each timer."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
    partitions = list(range(PARTITIONS))
    until = DUE + timedelta(minutes=10)

    async def collect(data: bytes) -> None:
        copied.extend(data)

    best: dict[str, float] = {}
    for _ in range(7):
        for way in ("bare", "bare fetch", "store"):
            copied = bytearray()
            begun = time.perf_counter()
            if way == "store":
                found = len(await store.timers.load(partitions, DUE_US + 10 * MINUTE_US))
            elif way == "bare fetch":
                found = len(await connection.fetch(QUERIES["load_timers"], partitions, until))
            else:
                await connection.copy_from_query(
                    QUERIES["load_timers"], partitions, until, output=collect, format="binary"
                )
                found = len(copied) // 42
            cost = (time.perf_counter() - begun) / found * 1e9
            best[way] = min(best.get(way, cost), cost)
    await connection.close()
    return best


async def bench_register(url: str) -> float:
    """Registers ten thousand jobs at once, the best of five: nanoseconds for each job."""
    config = StoreConfig(url=url, role="api", command_timeout_ms=60_000)
    best = float("inf")
    async with await Database.open(config) as database:
        store = PostgresStore(database)
        tenant = Tenant(tenant_id=TENANT, name="bench", created_at_us=0)
        await store.tenants.create("bench", tenant)
        for _ in range(5):
            jobs = [Registration(new_job(), DUE_US) for _ in range(REGISTERED)]
            begun = time.perf_counter()
            assert not await store.jobs.register(Caller(TENANT, "bench"), jobs)
            best = min(best, (time.perf_counter() - begun) / REGISTERED * 1e9)
    return best


def new_job() -> Job:
    job_id = uuid4()
    return Job(
        job_id=job_id,
        tenant_id=TENANT,
        name=f"job {job_id.hex}",
        schedule=Raw(b'"0 9 * * 1"'),
        spec=Spec(kind="cron", expression="0 9 * * 1", timezone="America/New_York"),
        anchor_us=DUE_US,
        target=JobTarget(url="https://example.org/hooks/report", headers={"x-team": "a"}),
        payload=Raw(b'{"report": "weekly"}'),
        tags={"team": "a"},
        created_at_us=DUE_US,
        updated_at_us=DUE_US,
    )


async def fill(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
    await migrate(connection)
    await connection.execute("SELECT make_days(ARRAY['2027-01-15']::date[])")
    await connection.execute(FILL, TIMERS, DUE, RUNS, RUNS + HORIZON, timeout=3_600)
    await connection.execute("VACUUM ANALYZE timers", timeout=3_600)
    await connection.execute("CHECKPOINT", timeout=3_600)
    await connection.close()


@pytest.fixture(scope="module")
def filled(record: Record) -> Iterator[str]:
    """The address of a durable server with all timers."""
    record.targets = TARGETS
    home = Path(tempfile.mkdtemp(prefix="wheelsched-"))
    home.chmod(0o711)
    try:
        with EmbeddedPostgres.start(EmbeddedConfig(home=home)) as embedded:
            asyncio.run(fill(embedded.url))
            yield embedded.url
    finally:
        shutil.rmtree(home)


@pytest.mark.timeout(3_600)
async def test_store(record: Record, filled: str) -> None:
    config = StoreConfig(url=filled, role="shard", connections=1, command_timeout_ms=60_000)
    async with await Database.open(config) as database:
        store = PostgresStore(database)
        lease = await store.leases.join(uuid4(), 3_600_000_000)
        await store.leases.acquire(lease, range(PARTITIONS))
        sides = await bench_runs(filled, store, lease, database)
        loaded = await bench_load(filled, store)
    for side in sides:
        record.add("full run", side.name, RUNS, side.nanoseconds("arm", "settle"))
        record.add("arm", side.name, RUNS, side.nanoseconds("arm"))
        record.add("settle", side.name, RUNS, side.nanoseconds("settle"))
        record.add("program's CPU", side.name, RUNS, side.program_cpu / side.runs * 1e9)
        record.add("server's CPU", side.name, RUNS, side.server_cpu / side.runs * 1e9)
        record.add("log", side.name, RUNS, side.wal_bytes / side.runs, "bytes")
    for way, cost in loaded.items():
        record.add("load, a timer", way, HORIZON, cost)
    record.add("register, a job", OURS, REGISTERED, await bench_register(filled))
