"""The store against the bare statements that it is made of, in one run.

    python benchmarks/bench_store.py [--timers 2000000] [--runs 100000] [--check]

Durable commits, batches of 1,000, one connection. The store and a bare loop of asyncpg, which
sends the same statements with arguments made beforehand, take turns batch by batch: whatever
else the machine does hits both. A full run is armed and settled.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg

from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.partition import PARTITIONS
from wheelsched.ports import Claim, ClaimedRun, Lease, Settled
from wheelsched.store.database import PLANNING, Database
from wheelsched.store.embedded import EmbeddedPostgres
from wheelsched.store.migrate import migrate
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.queries import load_queries

QUERIES = load_queries("timers.sql") | load_queries("runs.sql")
BATCH = 1_000
HORIZON = 167_000
DUE = datetime(2027, 1, 15, 8, tzinfo=UTC)
DUE_US = int(DUE.timestamp()) * 1_000_000
MINUTE_US = 60_000_000
TENANT = uuid4()
TICKS = os.sysconf("SC_CLK_TCK")

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

    def rate(self, *steps: str) -> float:
        return self.runs / sum(self.seconds[step] for step in steps)


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
        nothing: list[object] = [None] * count
        tokens = list(range(first, first + count))
        return [
            *(job_ids, [DUE] * count, tokens, ["succeeded"] * count, [DUE] * count),
            *([DUE] * count, [2_000] * count, [200] * count, nothing, nothing, nothing),
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
        settled = [
            Settled(
                key=RunKey(job_id, DUE_US),
                token=token,
                state=RunState.SUCCEEDED,
                started_at_us=DUE_US,
                finished_at_us=DUE_US,
                lateness_us=2_000,
                http_status=200,
            )
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
                    work = partial(bare.send, "settle", bare.settle_arguments(job_ids, first))
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
    """Loads a horizon, the best of five by each way, in turns."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
    partitions = list(range(PARTITIONS))
    until = DUE + timedelta(minutes=10)

    async def collect(data: bytes) -> None:
        copied.extend(data)

    best: dict[str, float] = {}
    for _ in range(5):
        for way in ("bare copy", "bare fetch", "store"):
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
            best[way] = max(best.get(way, 0), found / (time.perf_counter() - begun))
    await connection.close()
    return best


async def fill(url: str, timers: int, runs: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "wheelsched"})
    await migrate(connection)
    await connection.execute("SELECT make_days(ARRAY['2027-01-15']::date[])")
    await connection.execute(FILL, timers, DUE, runs, runs + HORIZON)
    await connection.execute("VACUUM ANALYZE timers")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def bench(url: str, timers: int, runs: int) -> bool:
    """Prints what was measured, and gives whether the store keeps up."""
    await fill(url, timers, runs)
    config = StoreConfig(url=url, role="shard", connections=1, command_timeout_ms=60_000)
    async with await Database.open(config) as database:
        store = PostgresStore(database)
        lease = await store.leases.join(uuid4(), 3_600_000_000)
        await store.leases.acquire(lease, range(PARTITIONS))
        bare, through = await bench_runs(url, store, lease, database)
        loaded = await bench_load(url, store)
    print(f"{timers:,} timers, batches of {BATCH:,}, durable, {bare.runs:,} runs by each")
    print(f"{'':8}{'full runs/s':>12}{'armed/s':>10}{'settled/s':>11}{'µs program':>12}"
          f"{'µs server':>11}{'WAL bytes':>11}")  # fmt: skip
    for side in (bare, through):
        print(
            f"{side.name:8}{side.rate('arm', 'settle'):12,.0f}{side.rate('arm'):10,.0f}"
            f"{side.rate('settle'):11,.0f}{side.program_cpu / side.runs * 1e6:12.1f}"
            f"{side.server_cpu / side.runs * 1e6:11.1f}{side.wal_bytes / side.runs:11,.0f}"
        )
    for way, rate in loaded.items():
        print(f"load {way:12}{rate:12,.0f} timers/s")
    run_ratio = through.rate("arm", "settle") / bare.rate("arm", "settle")
    load_ratio = loaded["store"] / max(loaded["bare copy"], loaded["bare fetch"])
    print(f"store / bare: full runs {run_ratio:.2f}, load {load_ratio:.2f} (wanted: 0.80 each)")
    return run_ratio >= 0.8 and load_ratio >= 0.8


@contextmanager
def server() -> Iterator[str]:
    home = Path(tempfile.mkdtemp(prefix="wheelsched-"))
    home.chmod(0o711)
    try:
        with EmbeddedPostgres.start(EmbeddedConfig(home=home)) as embedded:
            yield embedded.url
    finally:
        shutil.rmtree(home)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--timers", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is below 0.8")
    options = parser.parse_args()
    with server() as url:
        keeps_up = asyncio.run(bench(url, options.timers, options.runs))
    return 1 if options.check and not keeps_up else 0


if __name__ == "__main__":
    sys.exit(main())
