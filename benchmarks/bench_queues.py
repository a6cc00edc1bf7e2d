"""Runs of a queue: how late they reach a worker that pulls, and what they cost.

    make bench ONLY=queues

Durable Postgres, and a handler that notes the time of each call, one call for each run. *Pulling*:
shard, API and worker are processes of their own. *In process*: a `Scheduler` is shard and worker in
one program. The hot second has 20,000 runs by default, WHEELSCHED_BENCH_RUNS=20000,100000 are the
design points; the steady rate is WHEELSCHED_BENCH_RATE for _SECONDS, one-offs at random
milliseconds. Handlers that run at once: WHEELSCHED_BENCH_CONCURRENCY.

CPU time is counted as for the peers: of everything from the first job registered until the last
outcome is written, with registering, arming and waiting. *Of it, from the second on* is the part
that runs, reports and settles.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple, Self

import pytest

from api_process import running_api
from processes import usage_of
from report import Record, Target
from stack import LINKED, Stack, measured_floor, now_us, quantile, repeated, running_stack

PULLING, IN_PROCESS = "pulling", "in process"
OURS = PULLING
SIZES = [int(size) for size in os.environ.get("WHEELSCHED_BENCH_RUNS", "20000").split(",")]
RATE = int(os.environ.get("WHEELSCHED_BENCH_RATE", "1000"))
SECONDS = int(os.environ.get("WHEELSCHED_BENCH_SECONDS", "15"))
CONCURRENCY = int(os.environ.get("WHEELSCHED_BENCH_CONCURRENCY", "1000"))
SECOND = 1_000_000
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
LAST_BEGUN_MS = {PULLING: {20_000: 300, 100_000: 1_000}, IN_PROCESS: {20_000: 200, 100_000: 700}}
LATE_MS = {"p50": 1.5, "p99": 12}
CPU_US = 130


class Programs(NamedTuple):
    """The processes of a stack, by name."""

    stack: Stack
    pids: dict[str, int]

    def cpu_s(self) -> dict[str, float]:
        """CPU time of each so far, and of Postgres and of this process, which registers."""
        used = {name: usage_of(pid).cpu_s for name, pid in self.pids.items()}
        return {**used, "Postgres": self.stack.server_cpu_s(), "registering": time.process_time()}

    async def until_settled(self, runs: int) -> None:
        if "shard" in self.pids:
            await self.stack.until_settled(runs, every_s=0.25)
        else:
            await self.stack.until_written(runs)


@asynccontextmanager
async def pulling() -> AsyncIterator[Programs]:
    async with running_stack(shards=0, has_sink=False) as stack:
        await stack.start_shard(LINKED)
        async with running_api(stack.url) as api:
            worker = stack.start_puller(api.url, CONCURRENCY)
            pids = {"shard": stack.shard_pid, "API": api.process_id, "worker": worker}
            yield Programs(stack, pids)
            stack.stop()  # the worker reports before the API ends


@asynccontextmanager
async def in_process() -> AsyncIterator[Programs]:
    async with running_stack(shards=0, has_sink=False) as stack:
        yield Programs(stack, {"program": await stack.start_scheduler(CONCURRENCY)})


STACKS = {PULLING: pulling, IN_PROCESS: in_process}


class Spent(NamedTuple):
    """CPU time between two moments, in µs a run."""

    by_program: dict[str, float]

    @classmethod
    def between(cls, begin: dict[str, float], end: dict[str, float], runs: int) -> Self:
        return cls({name: (end[name] - begin[name]) / runs * 1e6 for name in begin})

    @property
    def total(self) -> float:
        return sum(self.by_program.values())


def target(text: str, workload: str, size: int, bound: float) -> Target:
    return Target(f"{text}, {size:,}", workload, size, None, bound)


def targets() -> list[Target]:
    found = [
        Target(f"{PULLING}, {name}, ms", f"steady, late {name}", RATE, None, bound)
        for name, bound in LATE_MS.items()
    ]
    for kind in STACKS:
        for size in SIZES:
            if bound := LAST_BEGUN_MS[kind].get(size):
                found.append(target(f"{kind}, last begun, ms", f"last begun, {kind}", size, bound))
            found.append(target(f"{kind}, lost", f"lost, {kind}", size, 0))
            found.append(target(f"{kind}, repeated", f"repeated, {kind}", size, 0))
    return [
        *found,
        *(target("in process, CPU, µs", "CPU, a run, in process", size, CPU_US) for size in SIZES),
        *(Target(f"steady, {what}", f"steady, {what}", RATE, None, 0) for what in NEVER),
    ]


NEVER = ("lost", "repeated")


@pytest.fixture(scope="module", autouse=True)
def all_targets(record: Record) -> None:
    record.targets = targets()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("runs", SIZES)
@pytest.mark.parametrize("kind", STACKS)
async def test_hot_second(record: Record, kind: str, runs: int) -> None:
    async with STACKS[kind]() as programs:
        due_us = (now_us() + 15 * SECOND + runs * 200) // SECOND * SECOND
        before = programs.cpu_s()
        expected = await programs.stack.register([due_us] * runs, is_queued=True)
        assert now_us() < due_us, "registering took too long for the time that was left"
        await asyncio.sleep(max(due_us / SECOND - time.time() - 0.2, 0))
        in_time = await programs.stack.database.fetchval("SELECT count(*) FROM runs")
        armed = programs.cpu_s()
        await programs.until_settled(runs)
        settled_us = now_us()
        after = programs.cpu_s()
        arrivals = programs.stack.stop()
    late_us = sorted(arrival.lateness_us for arrival in arrivals)
    spent, of_it = Spent.between(before, after, runs), Spent.between(armed, after, runs)

    def add(name: str, value: float, unit: str) -> None:
        record.add(f"{name}, {kind}", OURS, runs, value, unit)

    add("armed in time", in_time, "runs")  # with fewer than all, arming is measured, too
    add("first begun", late_us[0] / 1_000, "ms")
    add("late p50", quantile(late_us, 0.5) / 1_000, "ms")
    add("last begun", late_us[-1] / 1_000, "ms")
    add("settled", (settled_us - due_us) / 1_000, "ms")
    add("CPU, a run", spent.total, "µs")
    for name, used_us in spent.by_program.items():
        add(f"CPU of {name}, a run", used_us, "µs")
        if name != "registering":
            add(f"CPU of {name}, of it, from the second on", of_it.by_program[name], "µs")
    add("lost", len(expected - {arrival.run_id for arrival in arrivals}), "runs")
    add("repeated", repeated(arrivals), "runs")


@pytest.mark.timeout(3_600)
async def test_steady(record: Record) -> None:
    random, runs = Random(1), RATE * SECONDS
    async with pulling() as programs:
        start_us = now_us() + 10 * SECOND + runs * 50
        dues_us = sorted(
            (start_us + random.randrange(SECONDS * SECOND)) // 1_000 * 1_000 for _ in range(runs)
        )
        expected = await programs.stack.register(dues_us, is_queued=True)
        with measured_floor() as floor_us:
            await asyncio.sleep(max(start_us / SECOND - time.time(), 0))
            before = programs.cpu_s()
            await programs.until_settled(runs)
            after = programs.cpu_s()
        arrivals = programs.stack.stop()
    late_us = sorted(arrival.lateness_us for arrival in arrivals)
    for name, share in SHARES.items():
        record.add(f"steady, late {name}", OURS, RATE, quantile(late_us, share) / 1_000, "ms")
        record.add(f"steady, late {name}", "loop", RATE, quantile(floor_us, share) / 1_000, "ms")
    for name, used_us in Spent.between(before, after, runs).by_program.items():
        record.add(f"steady, CPU of {name}, a run", OURS, RATE, used_us, "µs")
    lost = expected - {arrival.run_id for arrival in arrivals}
    record.add("steady, lost", OURS, RATE, len(lost), "runs")
    record.add("steady, repeated", OURS, RATE, repeated(arrivals), "runs")
