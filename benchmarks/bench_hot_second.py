"""A hot second: so many runs due at one moment, and how long after it they were out.

make bench ONLY=hot_second

Durable Postgres, one shard, a worker that does no work, all on the same machine; in batches of 500
and one by one, of which there are 20,000 at most. And what becomes of others around it: a hundred
a second, one by one, from five seconds before it until ten seconds after. The floor is a loop that
does nothing else, asked to wake up every few milliseconds meanwhile. 20,000 runs by default;
WHEELSCHED_BENCH_RUNS=20000,100000,500000 are the design points.
"""

import asyncio
import os
import time
from pathlib import Path
from random import Random

import pytest

from plots import plot_over_time, plot_progress
from report import Record, Target
from stack import measured_floor, now_us, quantile, repeated, running_stack

OURS = "wheelsched"
SIZES = [int(size) for size in os.environ.get("WHEELSCHED_BENCH_RUNS", "20000").split(",")]
MOST_SINGLE = 20_000
SECOND = 1_000_000
BATCH = 500
POINTS: dict[str, list[tuple[float, float]]] = {}
AMONG = min(max(SIZES), 100_000)
OTHERS = 1_500
AROUND_US = (-5 * SECOND, 10 * SECOND)
# After the second, in ms, batched.
LAST_OUT_MS = {20_000: 200, 100_000: 500, 500_000: 2_000}
SETTLED_MS = {500_000: 8_000}
KINDS = [
    *(("batched", size, BATCH) for size in SIZES),
    *(("single", size, 1) for size in sorted({min(size, MOST_SINGLE) for size in SIZES})),
]


def targets() -> list[Target]:
    found = []
    for kind, size, _ in KINDS:
        if kind == "batched":
            if bound := LAST_OUT_MS.get(size):
                found.append(
                    Target(f"{size:,}, last out, ms", f"last out, {kind}", size, None, bound)
                )
            if bound := SETTLED_MS.get(size):
                found.append(
                    Target(f"{size:,}, settled, ms", f"settled, {kind}", size, None, bound)
                )
            memory = f"{size:,}, the shard's memory, MiB"
            found.append(Target(memory, f"peak memory, {kind}", size, None, 1_024))
        found += [
            Target(f"{size:,} {kind}, {what}", f"{what}, {kind}", size, None, 0)
            for what in ("lost", "repeated")
        ]
    return found


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("kind", "runs", "batch"), KINDS)
async def test_hot_second(record: Record, kind: str, runs: int, batch: int) -> None:
    record.targets = targets()
    async with running_stack() as stack:
        idle = stack.shard_usage()
        ahead_us = 15 * SECOND + runs * 200  # to register them, and to arm them
        due_us = (now_us() + ahead_us) // SECOND * SECOND
        expected = await stack.register([due_us] * runs, batch=batch)
        assert now_us() < due_us, "registering took too long for the time that was left"
        with measured_floor() as floor_us:
            await asyncio.sleep(max(due_us / SECOND - time.time() - 0.5, 0))
            armed = stack.shard_usage()
            settled_us = await stack.until_settled(runs, every_s=0.25)
        usage = stack.shard_usage()
        arrivals = stack.stop()
    late_us = sorted(arrival.lateness_us for arrival in arrivals)
    record.add(f"first out, {kind}", OURS, runs, late_us[0] / 1_000, "ms")
    record.add(f"last out, {kind}", OURS, runs, late_us[-1] / 1_000, "ms")
    record.add(f"last out, {kind}", "loop, p99", runs, quantile(floor_us, 0.99) / 1_000, "ms")
    record.add(f"settled, {kind}", OURS, runs, (settled_us - due_us) / 1_000, "ms")
    record.add(f"rate out, {kind}", OURS, runs, runs / late_us[-1] * SECOND, "runs/s")
    record.add(f"shard's CPU, a run, {kind}", OURS, runs, usage.cpu_s / runs * 1e6, "µs")
    record.add(f"peak memory, {kind}", OURS, runs, usage.peak_mib, "MiB")
    armed_bytes = (armed.resident_mib - idle.resident_mib) * 2**20 / runs
    record.add(f"memory of an armed run, {kind}", OURS, runs, armed_bytes, "bytes")
    lost = expected - {arrival.run_id for arrival in arrivals}
    record.add(f"lost, {kind}", OURS, runs, len(lost), "runs")
    record.add(f"repeated, {kind}", OURS, runs, repeated(arrivals), "runs")
    record.samples[f"{runs:,}", kind] = late_us


@pytest.mark.timeout(3_600)
async def test_others_around_it(record: Record) -> None:
    random = Random(1)
    async with running_stack() as stack:
        due_us = (now_us() + 15 * SECOND + AMONG * 200) // SECOND * SECOND
        dues_us = [due_us + random.randrange(*AROUND_US) // 1_000 * 1_000 for _ in range(OTHERS)]
        expected = await stack.register([due_us] * AMONG, batch=BATCH)
        expected |= await stack.register(dues_us, batch=1)
        await stack.until_settled(AMONG + OTHERS)
        arrivals = stack.stop()
    others = [arrival for arrival in arrivals if arrival.due_us != due_us]
    late_us = sorted(arrival.lateness_us for arrival in others)
    for name, share in {"p50": 0.5, "p99": 0.99, "worst": 1.0}.items():
        record.add(f"others, {name}", OURS, AMONG, quantile(late_us, share) / 1_000, "ms")
    record.add("lost, others", OURS, AMONG, len(expected) - len(arrivals), "runs")
    for name, drawn in (
        (f"{AMONG:,} on one second", [each for each in arrivals if each.due_us == due_us]),
        ("others", others),
    ):
        POINTS[name] = [
            ((each.due_us - due_us) / SECOND, max(each.lateness_us / 1_000, 0.01)) for each in drawn
        ]


def draw(record: Record, directory: Path) -> None:
    if POINTS:
        plot_over_time(directory / "hot_second_over_time.png", POINTS)
        samples = {" ".join(key): late_us for key, late_us in record.samples.items()}
        plot_progress(directory / "hot_second_progress.png", samples)
