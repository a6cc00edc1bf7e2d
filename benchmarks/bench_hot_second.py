"""A hot second: so many runs due at one moment, and how long after it they were out.

make bench ONLY=hot_second

Durable Postgres, one shard, a worker that does no work, all on the same machine; in batches of 500
and one by one. 20,000 by default; WHEELSCHED_BENCH_RUNS=500000 is the design point.
"""

import os

import pytest

from report import Record, Target
from stack import now_us, repeated, running_stack

OURS = "wheelsched"
RUNS = int(os.environ.get("WHEELSCHED_BENCH_RUNS", "20000"))
SINGLE_RUNS = min(RUNS, 20_000)
AHEAD_US = 15_000_000 + RUNS * 200  # to register them, and to arm them
SECOND = 1_000_000

TARGETS = [
    Target("batched, last out after the second, ms", "last out, batched", RUNS, None, 10_000),
    Target("batched, all settled after the second, ms", "settled, batched", RUNS, None, 20_000),
    Target("batched, the shard's memory, MiB", "peak memory, batched", RUNS, None, 1_024),
    Target("batched, lost", "lost, batched", RUNS, None, 0),
    Target("batched, repeated", "repeated, batched", RUNS, None, 0),
    Target("single, lost", "lost, single", SINGLE_RUNS, None, 0),
    Target("single, repeated", "repeated, single", SINGLE_RUNS, None, 0),
]


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("kind", "runs", "batch"), [("batched", RUNS, 500), ("single", SINGLE_RUNS, 1)]
)
async def test_hot_second(record: Record, kind: str, runs: int, batch: int) -> None:
    record.targets = TARGETS
    async with running_stack() as stack:
        due_us = (now_us() + AHEAD_US) // SECOND * SECOND
        expected = await stack.register([due_us] * runs, batch=batch)
        assert now_us() < due_us, "registering took too long for the time that was left"
        settled_us = await stack.until_settled(runs)
        usage = stack.shard_usage()
        arrivals = stack.stop()
    lateness_us = sorted(arrival.lateness_us for arrival in arrivals)
    record.add(f"first out, {kind}", OURS, runs, lateness_us[0] / 1_000, "ms")
    record.add(f"last out, {kind}", OURS, runs, lateness_us[-1] / 1_000, "ms")
    record.add(f"settled, {kind}", OURS, runs, (settled_us - due_us) / 1_000, "ms")
    record.add(f"rate out, {kind}", OURS, runs, runs / lateness_us[-1] * SECOND, "runs/s")
    record.add(f"shard's CPU, a run, {kind}", OURS, runs, usage.cpu_s / runs * 1e6, "µs")
    record.add(f"peak memory, {kind}", OURS, runs, usage.peak_mib, "MiB")
    lost = expected - {arrival.run_id for arrival in arrivals}
    record.add(f"lost, {kind}", OURS, runs, len(lost), "runs")
    record.add(f"repeated, {kind}", OURS, runs, repeated(arrivals), "runs")
