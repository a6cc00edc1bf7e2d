"""A shard is killed: how long until the other fires its jobs, and until it does so on time.

make bench ONLY=takeover

Two shards with about so many timers each, all within the horizon; one is killed with SIGKILL, and
its parent sees it. Beside it is what was left of its lease then: without a parent and behind a
pooler, nobody may take over before. Small by default;
WHEELSCHED_BENCH_TIMERS=167000 is the design point.
"""

import asyncio
import os
from pathlib import Path
from uuid import UUID

import pytest

from filling import Filling
from plots import plot_over_time
from report import Record, Target
from stack import Arrival, now_us, repeated, running_stack
from wheelsched.core.model import RunKey, format_run_id
from wheelsched.core.partition import partition_of

OURS = "wheelsched"
TIMERS = int(os.environ.get("WHEELSCHED_BENCH_TIMERS", "30000"))
SECOND = 1_000_000
SPAN_US = 600 * SECOND
BEFORE_S = 8
AFTER_S = 30
ON_TIME_US = 100_000
POINTS: dict[str, list[tuple[float, float]]] = {}
EXPIRY_OF_LAST = """
    SELECT expires_at FROM shards WHERE started_at = (SELECT max(started_at) FROM shards)
"""

TARGETS = [
    Target("the first of its jobs after the kill, ms", "first fire", TIMERS, None, 1_000),
    Target("the latest of its runs, ms late", "latest", TIMERS, None, 1_500),
    Target("lost", "lost", TIMERS, None, 0),
]


@pytest.mark.timeout(1_800)
async def test_takeover(record: Record) -> None:
    record.targets = TARGETS
    async with running_stack(shards=0) as stack:
        await stack.fill(Filling(2 * TIMERS, "10m", now_us() + 10 * SECOND, SPAN_US))
        timers = await stack.database.fetch("SELECT job_id, due_at FROM timers")
        await stack.start_shard()
        await stack.start_shard()
        began_us = now_us()
        await asyncio.sleep(BEFORE_S)
        lost_partitions = await stack.partitions_of_last()
        leased_us = await stack.database.fetchval(EXPIRY_OF_LAST)
        killed_us = now_us()
        stack.kill_shard()
        await asyncio.sleep(AFTER_S)
        end_us = now_us() - SECOND
        usage = stack.shard_usage()
        arrivals = stack.stop()
    theirs = [
        arrival
        for arrival in arrivals
        if arrival.due_us >= began_us and partition_of(_job_id(arrival)) in lost_partitions
    ]
    after = [arrival for arrival in theirs if arrival.at_us > killed_us]
    late = [arrival for arrival in after if arrival.lateness_us > ON_TIME_US]
    first_us = min(arrival.at_us for arrival in after) - killed_us
    on_time_us = max(arrival.at_us for arrival in late) - killed_us if late else 0
    latest_us = max(arrival.lateness_us for arrival in after)
    record.add("first fire", OURS, TIMERS, first_us / 1_000, "ms")
    record.add("on time again", OURS, TIMERS, on_time_us / 1_000, "ms")
    record.add("latest", OURS, TIMERS, latest_us / 1_000, "ms")
    record.add("first fire", "rest of the lease", TIMERS, (leased_us - killed_us) / 1_000, "ms")
    taken_over = [row for row in timers if partition_of(row["job_id"]) in lost_partitions]
    record.add("taken over", OURS, TIMERS, len(taken_over), "timers")
    record.add("survivor's memory", OURS, TIMERS, usage.resident_mib, "MiB")
    arrived = {arrival.run_id for arrival in arrivals}
    due = {
        format_run_id(RunKey(row["job_id"], row["due_at"]))
        for row in timers
        if row["due_at"] < end_us
    }
    record.add("lost", OURS, TIMERS, len(due - arrived), "runs")
    record.add("repeated", OURS, TIMERS, repeated(arrivals), "runs")
    for arrival in arrivals:
        name = "of the killed" if partition_of(_job_id(arrival)) in lost_partitions else "other"
        at_s = (arrival.due_us - killed_us) / SECOND
        POINTS.setdefault(name, []).append((at_s, max(arrival.lateness_us / 1_000, 0.01)))


def _job_id(arrival: Arrival) -> UUID:
    return UUID(arrival.run_id.partition("-")[0])


def draw(_: Record, directory: Path) -> None:
    if POINTS:
        plot_over_time(directory / "takeover.png", POINTS)
