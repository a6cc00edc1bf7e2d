"""A steady rate for minutes: recurring jobs, armed again each time, one callback to a run.

make bench ONLY=steady

Each job is due once a minute, at a millisecond of its own, so that there are sixty jobs to each run
a second. Durable Postgres, one shard, a worker that does no work, and beside them the floor: a loop
that is woken at planned times and does nothing else. Short by default; WHEELSCHED_BENCH_RATE=2800
WHEELSCHED_BENCH_SECONDS=300 is the design point.
"""

import asyncio
import os
import time
from pathlib import Path

import pytest

from filling import Filling
from plots import plot_distribution, plot_over_time
from report import Record, Target
from stack import Arrival, measured_floor, now_us, quantile, repeated, running_stack

OURS = "wheelsched"
RATE = int(os.environ.get("WHEELSCHED_BENCH_RATE", "1000"))
SECONDS = int(os.environ.get("WHEELSCHED_BENCH_SECONDS", "20"))
JOBS = RATE * 60
SECOND = 1_000_000
MINUTE_US = 60 * SECOND
READY_S = 15  # for the shard to start and to load
LEAST_S = 5  # after the last due time, for what is late
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "worst": 1.0}

TARGETS = [
    Target("p99, ms", "p99", RATE, None, 12),
    Target("the shard's cores", "shard's cores", RATE, None, 1),
    Target("lost", "lost", RATE, None, 0),
    Target("repeated", "repeated", RATE, None, 0),
]


def expected_runs(anchors_us: list[int], start_us: int, end_us: int) -> int:
    """How many due times the jobs have in a span of time."""
    return sum(
        (end_us - 1 - anchor_us) // MINUTE_US - (start_us - 1 - anchor_us) // MINUTE_US
        for anchor_us in anchors_us
    )


@pytest.mark.timeout(3_600)
async def test_steady(record: Record) -> None:
    record.targets = TARGETS
    async with running_stack(shards=0) as stack:
        start_us = now_us() + READY_S * SECOND + JOBS * 60
        await stack.fill(Filling(JOBS, "1m", start_us, MINUTE_US))
        rows = await stack.database.fetch("SELECT due_at FROM timers")
        anchors_us = [row["due_at"] for row in rows]
        assert now_us() < start_us - 5 * SECOND, "filling took too long for the time that was left"
        await stack.start_shard()
        await asyncio.sleep(start_us / SECOND - time.time())
        before, server_before = stack.shard_usage(), stack.server_cpu_s()
        with measured_floor() as floor_us:
            await asyncio.sleep(SECONDS)
            after, server_after = stack.shard_usage(), stack.server_cpu_s()
        await asyncio.sleep(LEAST_S)
        arrivals = stack.stop()
    end_us = start_us + SECONDS * SECOND
    measured = [arrival for arrival in arrivals if start_us <= arrival.due_us < end_us]
    late_us = sorted(arrival.lateness_us for arrival in measured)
    for name, share in SHARES.items():
        record.add(name, OURS, RATE, quantile(late_us, share) / 1_000, "ms")
        record.add(name, "loop", RATE, quantile(floor_us, share) / 1_000, "ms")
    runs = len(measured)
    record.add("shard's cores", OURS, RATE, (after.cpu_s - before.cpu_s) / SECONDS, "cores")
    record.add("Postgres's cores", OURS, RATE, (server_after - server_before) / SECONDS, "cores")
    record.add("shard's memory", OURS, RATE, after.resident_mib, "MiB")
    expected = expected_runs(anchors_us, start_us, end_us)
    record.add("runs", OURS, RATE, runs, "runs")
    record.add("lost", OURS, RATE, expected - (runs - repeated(measured)), "runs")
    record.add("repeated", OURS, RATE, repeated(measured), "runs")
    record.samples["lateness", OURS] = late_us
    record.samples["lateness", "loop"] = floor_us
    POINTS[:] = [_point(arrival, start_us) for arrival in measured]


POINTS: list[tuple[float, float]] = []


def _point(arrival: Arrival, start_us: int) -> tuple[float, float]:
    return (arrival.due_us - start_us) / SECOND, max(arrival.lateness_us / 1_000, 0.01)


def draw(record: Record, directory: Path) -> None:
    samples = {name: late_us for (_, name), late_us in record.samples.items()}
    if samples and POINTS:
        plot_distribution(directory / "steady_distribution.png", samples)
        plot_over_time(directory / "steady_over_time.png", {OURS: POINTS})
