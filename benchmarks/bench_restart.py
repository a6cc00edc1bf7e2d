"""Loading the horizon and starting again, as the number of registered jobs grows.

make bench ONLY=restart

Jobs are due every ten hours, so that one in sixty is within the ten minutes of the horizon: of ten
million, 167,000. Tables are filled by the database itself, in steps of ten; at each the shard is
started, looked at, ended and started again. At the end a server that holds the same horizon and
nothing else: what the load costs is to depend on the horizon, not on the number of jobs.

A load visits the rows of pages on which anything was written since the last vacuum. Half-way to the
next one (autovacuum comes when one timer in fifty has moved) the timers are *worn*.

The floor of a load is a bare binary COPY of the same rows; that of a restart is a Python that
imports the shard and ends. A few more jobs, due every second, show when the first run is fired.
Small by default; WHEELSCHED_BENCH_JOBS=10000000 is the design point.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from filling import Filling
from plots import plot_growth
from report import Record, Target
from stack import Stack, now_us, running_stack
from wheelsched.store.queries import load_queries

OURS = "wheelsched"
JOBS = int(os.environ.get("WHEELSCHED_BENCH_JOBS", "200000"))
SIZES = [size for size in (JOBS // 1_000, JOBS // 100, JOBS // 10, JOBS) if size >= 10_000]
SECOND = 1_000_000
HORIZON_US = 600 * SECOND
SHARE = 60  # of all jobs, one in so many is within the horizon
FREQUENT = 40  # jobs that are due every second
ALONE = "horizon alone"
STATEMENT_S = 600
WEAR = """
    UPDATE timers SET due_at = due_at + interval '10 hours'
    WHERE job_id IN (
        SELECT job_id FROM timers TABLESAMPLE BERNOULLI (1)
        WHERE due_at > now() + interval '20 minutes'
    )
"""

TARGETS = [
    Target("horizon load, ms", "load", JOBS, None, 3_000),
    Target("restart to first fire, ms", "restart to first fire", JOBS, None, 5_000),
    Target("resident memory, MiB", "resident memory", JOBS, None, 250),
    Target("load, against the same horizon alone", "load", JOBS, ALONE, 0.67),
    Target("load, against bare COPY", "load", JOBS, "bare COPY", 0.25),
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
            added = size - registered
            await stack.fill(Filling(added, "10h", now_us(), HORIZON_US * SHARE))
            registered = size
            record.add("filling", OURS, size, time.perf_counter() - begun_s, "s")
            timers = await measure(stack, record, OURS, size)
            memory[timers] = record.value("resident memory", OURS, size) or 0
        async with stack.database.connection() as connection:
            await connection.execute(WEAR, timeout=STATEMENT_S)
        record.add("load, worn", "bare COPY", JOBS, await bare_copy_ms(stack), "ms")
    if len(memory) > 1:
        low, high = min(memory), max(memory)
        each = (memory[high] - memory[low]) * 2**20 / (high - low)
        record.add("memory of a timer", OURS, JOBS, each, "bytes")


@pytest.mark.timeout(3_600)
async def test_horizon_alone(record: Record) -> None:
    async with running_stack(shards=0) as stack:
        await fill_frequent(stack)
        await stack.fill(Filling(JOBS // SHARE, "10m", now_us(), HORIZON_US))
        await measure(stack, record, ALONE, JOBS)


def test_bare_start(record: Record) -> None:
    begun_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import wheelsched.daemon.shard"], check=True, timeout=60)
    taken_ms = (time.perf_counter() - begun_s) * 1_000
    record.add("restart to first fire", "bare import", JOBS, taken_ms, "ms")


async def fill_frequent(stack: Stack) -> None:
    await stack.fill(Filling(FREQUENT, "1s", now_us(), SECOND))


async def measure(stack: Stack, record: Record, name: str, size: int) -> float:
    """A start, a look, an end and a start; how many timers the shard held."""
    await stack.start_shard()
    metrics = await until_loaded(stack)
    usage = stack.shard_usage()
    load_ms = metrics["wheelsched_load_duration_seconds_sum"] * 1_000
    timers = metrics["wheelsched_wheel_timers"]
    bare_ms = await bare_copy_ms(stack)
    stack.stop_shard()
    restarted_us = now_us()
    await stack.start_shard()
    first_us = await stack.until_first_start(restarted_us)
    stack.stop_shard()
    record.add("timers", name, size, timers, "timers")
    record.add("load", name, size, load_ms, "ms")
    if name == OURS:
        record.add("load", "bare COPY", size, bare_ms, "ms")
    record.add("restart to first fire", name, size, (first_us - restarted_us) / 1_000, "ms")
    record.add("resident memory", name, size, usage.resident_mib, "MiB")
    return timers


async def until_loaded(stack: Stack) -> dict[str, float]:
    """Waits until every partition was read once; partitions that came apart were read apart."""
    counted = "SELECT count(*) FROM timers WHERE due_at <= now() + interval '595 seconds'"
    expected = await stack.database.fetchval(counted)
    async with asyncio.timeout(STATEMENT_S):
        while (metrics := await stack.metrics())["wheelsched_load_rows_total"] < expected:
            await asyncio.sleep(0.1)
        while (timers := (await stack.metrics())["wheelsched_wheel_timers"]) < expected / 2:
            await asyncio.sleep(0.1)  # a gauge, which is not written at once
    return metrics | {"wheelsched_wheel_timers": timers}


async def bare_copy_ms(stack: Stack) -> float:
    """The statement of the load, its rows thrown away."""
    query = load_queries("timers.sql")["load_timers"].rstrip().rstrip(";")
    horizon = f"now() + interval '{HORIZON_US} microseconds'"
    query = query.replace("$1::smallint[]", "ARRAY(SELECT generate_series(0, 255)::smallint)")
    query = query.replace("$2", horizon)

    async def drop(_: bytes) -> None:
        pass

    async with stack.database.connection() as connection:
        begun_s = time.perf_counter()
        await connection.copy_from_query(query, output=drop, format="binary", timeout=STATEMENT_S)
        return (time.perf_counter() - begun_s) * 1_000


def draw(record: Record, directory: Path) -> None:
    for workload in ("load", "restart to first fire", "resident memory"):
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for figure in record.figures:
            if figure.workload == workload:
                lines[figure.rival].append((figure.size, figure.value))
        if lines:
            unit = next(each.unit for each in record.figures if each.workload == workload)
            name = f"restart_{workload.replace(' ', '_')}.png"
            plot_growth(directory / name, lines, f"{workload}, {unit}")
