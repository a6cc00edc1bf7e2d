"""Loading the horizon and starting again, as the number of registered jobs grows.

make bench ONLY=restart

Jobs are due every ten hours, so that one in sixty is within the ten minutes of the horizon: of ten
million, 167,000. Tables are filled by the database itself, in steps of ten; at each the shard is
started, looked at, ended and started again.

What a load costs is to depend on the horizon, not on the number of jobs. So the same horizon is
loaded alone, among a tenth of the jobs, and among all of them; and of all of them horizons of one,
three and ten minutes: by the store, as a shard does it, and in turn by the bare statement, a binary
COPY whose rows are thrown away. All of that after a vacuum. A load also visits the rows of pages on
which anything was written since the last one; half-way to the next (autovacuum comes when one timer
in fifty has moved) the timers are *worn*.

The floor of a restart is a Python that imports the shard and ends. A few more jobs, due every
second, show when the first run is fired. Small by default; WHEELSCHED_BENCH_JOBS=10000000 is the
design point.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from filling import Filling
from plots import plot_growth
from report import Record, Target
from stack import Stack, now_us, running_stack
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.for_shard.timers import PostgresTimers

OURS = "wheelsched"
JOBS = int(os.environ.get("WHEELSCHED_BENCH_JOBS", "200000"))
SIZES = [size for size in (JOBS // 1_000, JOBS // 100, JOBS // 10, JOBS) if size >= 10_000]
SECOND = 1_000_000
HORIZON_US = 600 * SECOND
HORIZONS_S = (60, 180)  # and the whole
SHARE = 60  # of all jobs, one in so many is within the horizon
FREQUENT = 40  # jobs that are due every second
ROUNDS = 7
STATEMENT_S = 600
LOAD = load_queries("timers.sql")["load_timers"].rstrip().rstrip(";")

ALONE, TENTH, BARE = "horizon alone", "among a tenth", "bare COPY"

# They move from now on: what they leave behind lies where a load looks.
WEAR = """
    WITH moved AS (
        SELECT job_id, due_at FROM timers TABLESAMPLE BERNOULLI (1)
        WHERE due_at > now() + interval '20 minutes'
    ), due AS (
        UPDATE timers SET due_at = now() FROM moved WHERE timers.job_id = moved.job_id
        RETURNING timers.job_id
    )
    SELECT array_agg(job_id) FROM due
"""
WEAR_ON = """
    UPDATE timers SET due_at = due_at + interval '10 hours' WHERE job_id = ANY ($1::uuid[])
"""

TARGETS = [
    Target("horizon load by the shard, ms", "first load", JOBS, None, 3_000),
    Target("restart to first fire, ms", "restart to first fire", JOBS, None, 5_000),
    Target("resident memory, MiB", "resident memory", JOBS, None, 250),
    Target("load, against the same horizon alone", "load", JOBS, ALONE, 0.67),
    Target("load, against bare COPY", "load", JOBS, BARE, 0.5),
]


@pytest.mark.timeout(7_200)
async def test_growth(record: Record) -> None:
    record.targets = TARGETS
    memory: dict[float, float] = {}
    async with running_stack(shards=0) as stack:
        await fill_frequent(stack)
        registered = 0
        for size in SIZES:
            begun_s = time.perf_counter()
            await stack.fill(Filling(size - registered, "10h", now_us(), HORIZON_US * SHARE))
            registered = size
            record.add("filling", OURS, size, time.perf_counter() - begun_s, "s")
            timers = await measure(stack, record, size)
            memory[timers] = record.value("resident memory", OURS, size) or 0
        for horizon_s in HORIZONS_S:
            await compare_loads(stack, record, f"load of {horizon_s} s", horizon_s * SECOND)
        await compare_loads(stack, record, "load", HORIZON_US)
        moved = await stack.database.fetchval(WEAR)
        await stack.database.fetch(WEAR_ON, moved)
        await compare_loads(stack, record, "load, worn", HORIZON_US)
    if len(memory) > 1:
        low, high = min(memory), max(memory)
        each = (memory[high] - memory[low]) * 2**20 / (high - low)
        record.add("memory of a timer", OURS, JOBS, each, "bytes")


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("name", "jobs", "every"), [(ALONE, JOBS // SHARE, "10m"), (TENTH, JOBS // 10, "1h")]
)
async def test_the_same_horizon(record: Record, name: str, jobs: int, every: str) -> None:
    async with running_stack(shards=0) as stack:
        span_us = HORIZON_US * SHARE * jobs // JOBS
        await stack.fill(Filling(jobs, every, now_us(), span_us))
        timers = PostgresTimers(stack.database)
        taken_ms = [await load_ms(timers, HORIZON_US) for _ in range(ROUNDS)]
        record.add("load", name, JOBS, median(taken_ms), "ms")


def test_bare_start(record: Record) -> None:
    begun_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import wheelsched.daemon.shard"], check=True, timeout=60)
    taken_ms = (time.perf_counter() - begun_s) * 1_000
    record.add("restart to first fire", "bare import", JOBS, taken_ms, "ms")


async def fill_frequent(stack: Stack) -> None:
    await stack.fill(Filling(FREQUENT, "1s", now_us(), SECOND))


async def measure(stack: Stack, record: Record, size: int) -> float:
    """A start, a look, an end and a start; how many timers the shard held."""
    counted = "SELECT count(*) FROM timers WHERE due_at <= now() + interval '590 seconds'"
    expected = await stack.database.fetchval(counted)  # before: it reads them all
    await stack.start_shard()
    metrics = await until_loaded(stack, expected - FREQUENT)
    usage = stack.shard_usage()
    stack.stop_shard()
    restarted_us = now_us()
    await stack.start_shard()
    first_us = await stack.until_first_start(restarted_us)
    stack.stop_shard()
    timers = metrics["wheelsched_wheel_timers"]
    record.add("timers", OURS, size, timers, "timers")
    loads_s = metrics["wheelsched_load_duration_seconds_sum"]
    record.add("first load", OURS, size, loads_s * 1_000, "ms")
    record.add("restart to first fire", OURS, size, (first_us - restarted_us) / 1_000, "ms")
    record.add("resident memory", OURS, size, usage.resident_mib, "MiB")
    return timers


async def until_loaded(stack: Stack, expected: int) -> dict[str, float]:
    """Waits until every partition was read once, and all of it is in the wheel.

    A part of it is armed and fired meanwhile.
    """
    async with asyncio.timeout(STATEMENT_S):
        while (metrics := await stack.metrics())["wheelsched_load_rows_total"] < expected:
            await asyncio.sleep(0.1)
        loads = metrics
        while metrics["wheelsched_wheel_timers"] < expected * 0.97:
            await asyncio.sleep(0.1)  # a gauge, which is not written at once
            metrics = await stack.metrics()
    return loads | {"wheelsched_wheel_timers": metrics["wheelsched_wheel_timers"]}


async def compare_loads(stack: Stack, record: Record, workload: str, horizon_us: int) -> None:
    """The load of the store and the bare one in turn: the middle of several rounds."""
    timers = PostgresTimers(stack.database)
    ours_ms, bare_ms = [], []
    for _ in range(ROUNDS):
        ours_ms.append(await load_ms(timers, horizon_us))
        bare_ms.append(await bare_copy_ms(stack, horizon_us))
    loaded = len(await timers.load(range(256), now_us() + horizon_us))
    record.add(workload, OURS, JOBS, median(ours_ms), "ms")
    record.add(workload, BARE, JOBS, median(bare_ms), "ms")
    record.add(f"{workload}, a timer", OURS, JOBS, median(ours_ms) * 1_000 / loaded, "µs")


async def load_ms(timers: PostgresTimers, horizon_us: int) -> float:
    begun_s = time.perf_counter()
    await timers.load(range(256), now_us() + horizon_us)
    return (time.perf_counter() - begun_s) * 1_000


async def bare_copy_ms(stack: Stack, horizon_us: int) -> float:
    """The statement of the load, its rows thrown away."""
    query = LOAD.replace("$1::smallint[]", "ARRAY(SELECT generate_series(0, 255)::smallint)")
    query = query.replace("$2", f"now() + interval '{horizon_us} microseconds'")

    async def drop(_: bytes) -> None:
        pass

    async with stack.database.connection() as connection:
        begun_s = time.perf_counter()
        await connection.copy_from_query(query, output=drop, format="binary", timeout=STATEMENT_S)
        return (time.perf_counter() - begun_s) * 1_000


def draw(record: Record, directory: Path) -> None:
    for workload in ("first load", "restart to first fire", "resident memory"):
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for figure in record.figures:
            if figure.workload == workload:
                lines[figure.rival].append((figure.size, figure.value))
        if lines:
            unit = next(each.unit for each in record.figures if each.workload == workload)
            name = f"restart_{workload.replace(' ', '_')}.png"
            plot_growth(directory / name, lines, f"{workload}, {unit}")
