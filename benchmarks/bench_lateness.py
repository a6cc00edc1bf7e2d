"""Lateness at a steady rate, beside that of a loop which does nothing else.

make bench ONLY=lateness

One-offs at random milliseconds, single callbacks, a durable Postgres, shard, worker and floor on
the same machine. Short by default; WHEELSCHED_BENCH_SECONDS=60 is what counts.
"""

import os
from random import Random

import pytest

from report import Record, Target
from stack import measured_floor, now_us, quantile, repeated, running_stack

OURS = "wheelsched"
RATE = int(os.environ.get("WHEELSCHED_BENCH_RATE", "1000"))
SECONDS = int(os.environ.get("WHEELSCHED_BENCH_SECONDS", "15"))
AHEAD_US = 10_000_000
RUNS = RATE * SECONDS
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}

TARGETS = [
    Target("p50 over the floor, µs", "p50 over floor", RUNS, None, 2_000),
    Target("p99 over the floor, µs", "p99 over floor", RUNS, None, 10_000),
    Target("lost", "lost", RUNS, None, 0),
    Target("repeated", "repeated", RUNS, None, 0),
]


@pytest.mark.timeout(3_600)
async def test_lateness(record: Record) -> None:
    record.targets = TARGETS
    random = Random(1)
    async with running_stack() as stack:
        start_us = now_us() + AHEAD_US + RUNS * 50
        dues_us = sorted(
            (start_us + random.randrange(SECONDS * 1_000_000)) // 1_000 * 1_000 for _ in range(RUNS)
        )
        expected = await stack.register(dues_us, batch=1)
        with measured_floor() as floor_us:
            await stack.until_settled(RUNS)
        usage = stack.shard_usage()
        arrivals = stack.stop()
    lateness_us = sorted(arrival.lateness_us for arrival in arrivals)
    for name, share in SHARES.items():
        ours, floor = quantile(lateness_us, share), quantile(floor_us, share)
        record.add(name, OURS, RUNS, ours, "µs")
        record.add(name, "loop", RUNS, floor, "µs")
        record.add(f"{name} over floor", OURS, RUNS, ours - floor, "µs")
    record.add("shard's CPU, a run", OURS, RUNS, usage.cpu_s / RUNS * 1e6, "µs")
    record.add("lost", OURS, RUNS, len(expected - {arrival.run_id for arrival in arrivals}), "runs")
    record.add("repeated", OURS, RUNS, repeated(arrivals), "runs")
