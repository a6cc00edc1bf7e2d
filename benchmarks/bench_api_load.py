"""Lateness while two hundred clients read and write, beside that of the same stack left alone.

make bench ONLY=api_load

One-offs at random milliseconds, a durable Postgres, a shard, a worker, the API and its clients on
the same machine. Stretches with and without clients take turns, so that whatever else the machine
does hits both. Short by default; WHEELSCHED_BENCH_SECONDS=30 is what counts.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from api_process import running_api
from clients import Seen
from report import Record, Target
from stack import HERE, WAIT_LIMIT_S, Stack, now_us, quantile, repeated, running_stack
from wheelsched.daemon.up import API_NICENESS

OURS = "with clients"
IDLE = "alone"
CLIENTS = 200
PAUSE_MS = int(os.environ.get("WHEELSCHED_BENCH_PAUSE_MS", "1000"))
RATE = int(os.environ.get("WHEELSCHED_BENCH_RATE", "200"))
SECONDS = int(os.environ.get("WHEELSCHED_BENCH_SECONDS", "4"))  # of a stretch
STRETCHES = 4  # of each kind
AHEAD_US = 8_000_000
GAP_US = 2_000_000  # between two stretches
RUNS = RATE * SECONDS * STRETCHES
SHARES = {"p50": 0.5, "p99": 0.99}

TARGETS = [
    Target("p99 lateness within 2× of that without clients", "p99", RUNS, IDLE, 0.5),
    Target("answers with 5xx, or none", "failed", RUNS, None, 0),
    Target("lost", "lost", RUNS, None, 0),
    Target("repeated", "repeated", RUNS, None, 0),
]


@contextlib.contextmanager
def working_clients(url: str, stretches: list[str], seen: Seen) -> Iterator[None]:
    """Clients that work in these stretches; what they saw is there when it is left."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "seen"
        process = subprocess.Popen(
            [
                sys.executable,
                HERE / "clients.py",
                url,
                str(CLIENTS),
                str(PAUSE_MS),
                path,
                *stretches,
            ]
        )
        try:
            yield
            process.wait(WAIT_LIMIT_S)
        finally:
            process.kill()
            process.wait(WAIT_LIMIT_S)
        more = msgspec.json.decode(path.read_bytes(), type=Seen)
    seen.statuses |= more.statuses
    seen.took_us += more.took_us


async def measure(stack: Stack, url: str, seen: Seen) -> tuple[list[int], set[str]]:
    """When the stretches began, with clients in each second one, and the ids of all runs."""
    random = Random(1)
    stretch_us = SECONDS * 1_000_000
    starts_us = [
        now_us() + AHEAD_US + RUNS * 100 + number * (stretch_us + GAP_US)
        for number in range(2 * STRETCHES)
    ]
    dues_us = [
        (start_us + random.randrange(stretch_us)) // 1_000 * 1_000
        for start_us in starts_us
        for _ in range(RATE * SECONDS)
    ]
    expected = await stack.register(dues_us, batch=1)
    # From a little earlier on, so that all are at it when the first run is due.
    stretches = [
        f"{start_us - GAP_US // 2}-{start_us + stretch_us}" for start_us in starts_us[1::2]
    ]
    with working_clients(url, stretches, seen):
        await stack.until_settled(len(dues_us))
    return starts_us, expected


@pytest.mark.timeout(3_600)
async def test_load(record: Record) -> None:
    record.targets = TARGETS
    seen = Seen({}, [])
    async with running_stack() as stack, running_api(stack.url, API_NICENESS) as api:
        starts_us, expected = await measure(stack, api.url, seen)
        arrivals = stack.stop()
    lateness_us: dict[str, list[int]] = {IDLE: [], OURS: []}
    for arrival in arrivals:
        stretch = bisect(starts_us, arrival.due_us) - 1
        lateness_us[OURS if stretch % 2 else IDLE].append(arrival.lateness_us)
    for kind, late_us in lateness_us.items():
        for name, share in SHARES.items():
            record.add(name, kind, RUNS, quantile(sorted(late_us), share), "µs")
    took_us = sorted(seen.took_us)
    failed = sum(count for status, count in seen.statuses.items() if not 200 <= status < 500)
    rate = len(took_us) / (SECONDS + GAP_US / 2e6) / STRETCHES
    record.add("answers a second", OURS, RUNS, rate, "1/s")
    for name, share in SHARES.items():
        record.add(f"answer, {name}", OURS, RUNS, quantile(took_us, share), "µs")
    for status, count in sorted(seen.statuses.items()):
        record.add(f"status {status}", OURS, RUNS, count, "answers")
    record.add("failed", OURS, RUNS, failed, "answers")
    lost = expected - {arrival.run_id for arrival in arrivals}
    record.add("lost", OURS, RUNS, len(lost), "runs")
    record.add("repeated", OURS, RUNS, repeated(arrivals), "runs")
