"""wheelsched beside what people use today, on the same durable Postgres, doing the same work.

make bench-peers

Two kinds of work, each on a fresh server: so many one-offs due at one second, and a steady rate of
one-offs at random times. The peers call a handler in their own process that does nothing;
wheelsched calls a worker over HTTP, in another process, that does nothing. Both are late by the
time at which the work begins there, minus the due time. CPU time is that of everything from the
start of the first process to the end of the last: making tables, enqueueing, waiting, running,
writing down; ours without the start of the process that registers, and with that of the server.

What the peers are asked for is in peers/protocol.py; each is a small program with its best
documented settings. One that fails is shown as failed, and the next goes on.

WHEELSCHED_PEERS_JOBS, _RATE and _SECONDS say how much work, _ROUNDS how often (the median counts),
_TIMEOUT how many seconds after the last due time a peer is given up.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from plots import plot_distribution, plot_progress
from processes import tree_cpu_s
from report import Record, Target
from stack import Arrival, Server, durable_server, now_us, quantile, running_stack

OURS = "wheelsched, batched"
SINGLE = "wheelsched, single"
COMMAND = "make bench-peers"
JOBS = int(os.environ.get("WHEELSCHED_PEERS_JOBS", "20000"))
RATE = int(os.environ.get("WHEELSCHED_PEERS_RATE", "1000"))
SECONDS = int(os.environ.get("WHEELSCHED_PEERS_SECONDS", "30"))
ROUNDS = int(os.environ.get("WHEELSCHED_PEERS_ROUNDS", "1"))
WAIT_LIMIT_S = int(os.environ.get("WHEELSCHED_PEERS_TIMEOUT", "300"))
SECOND = 1_000_000
HERE = Path(__file__).parent / "peers"
BUILT = Path(__file__).parent.parent / "build" / "peers"
READY_S = 6  # from the last job enqueued to the first due: a worker starts meanwhile
STOP_S = 60


class Peer(NamedTuple):
    """A program that speaks the protocol, and how many jobs a second it surely enqueues."""

    name: str
    environment: str
    program: str
    enqueued_per_s: int

    def command(self, *arguments: object) -> list[str]:
        home = BUILT / self.environment
        runner = home / "bin" / "python" if self.program.endswith(".py") else Path("node")
        return [str(runner), str(HERE / self.program), *map(str, arguments)]

    def variables(self) -> dict[str, str]:
        return {**os.environ, "NODE_PATH": str(BUILT / self.environment / "node_modules")}

    def is_installed(self) -> bool:
        return (BUILT / self.environment / ".installed").exists()


PYTHON_PEERS = [
    Peer("procrastinate", "procrastinate", "with_procrastinate.py", 2_000),
    Peer("pgqueuer", "pgqueuer", "with_pgqueuer.py", 5_000),
    Peer("APScheduler 3", "apscheduler3", "with_apscheduler3.py", 300),
    Peer("APScheduler 4", "apscheduler4", "with_apscheduler4.py", 100),
]
NODE_PEERS = [
    Peer("pg-boss", "pg-boss", "with_pg_boss.cjs", 5_000),
    Peer("graphile-worker", "graphile-worker", "with_graphile_worker.cjs", 5_000),
]
PEERS = [*PYTHON_PEERS, *NODE_PEERS]
WORKLOADS = {"hot second": JOBS, "steady": RATE * SECONDS}

TARGETS = [
    Target("hot second, last started after, ms", "hot second, last started", JOBS, None, 200),
    *(
        Target(f"drain vs {peer.name}", "hot second, last started", JOBS, peer.name, factor)
        for peers, factor in ((PYTHON_PEERS, 10), (NODE_PEERS, 1))
        for peer in peers
    ),
    *(
        Target(f"steady p99 vs {peer.name}", "steady, late p99", RATE * SECONDS, peer.name, 10)
        for peer in PEERS
    ),
]


class Outcome(NamedTuple):
    """What one program did with one workload."""

    enqueue_s: float
    starts: list[tuple[int, int]]  # the number of a job, and when it was started
    program_cpu_s: float
    server_cpu_s: float
    worker_cpu_s: float | None = None  # where the worker is another program


class Enqueued(NamedTuple):
    seconds: float
    dues_us: list[int]


def dues_from(start_us: int, workload: str) -> list[int]:
    """The due times of a workload, whole milliseconds as not everyone knows smaller ones."""
    if workload == "hot second":
        return [start_us] * JOBS
    random = Random(1)
    span_ms = SECONDS * 1_000
    return sorted(start_us + random.randrange(span_ms) * 1_000 for _ in range(RATE * SECONDS))


def start_in(seconds: float) -> int:
    """A whole second from now on, at least so far away."""
    return (now_us() // SECOND + int(seconds) + 1) * SECOND


class TooSlow(Exception):
    """The first job was due before the last was enqueued."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"enqueueing took {seconds:.0f} s, longer than there was")
        self.seconds = seconds


def enqueue(peer: Peer, server: Server, workload: str, ahead_s: float) -> Enqueued:
    dues_us = dues_from(start_in(ahead_s), workload)
    path = server.directory / "dues"
    path.write_text("\n".join(map(str, dues_us)))
    done = subprocess.run(
        peer.command("enqueue", server.url, path),
        env=peer.variables(),
        capture_output=True,
        text=True,
        timeout=max(ahead_s * 4, 120),
        check=False,
    )
    if done.returncode:
        pytest.fail(f"enqueueing failed: {done.stderr[-2_000:]}")
    seconds = float(done.stdout.split()[-1])
    left_s = dues_us[0] / SECOND - time.time()
    if left_s < READY_S / 2:
        raise TooSlow(seconds)
    return Enqueued(seconds, dues_us)


def work(peer: Peer, server: Server, dues_us: Sequence[int]) -> list[tuple[int, int]]:
    path, log = server.directory / "starts", server.directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            peer.command("work", server.url, len(dues_us), path),
            env=peer.variables(),
            stdout=output,
            stderr=output,
        )
    try:
        process.wait(dues_us[-1] / SECOND - time.time() + WAIT_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if not path.exists():
        pytest.fail(f"the worker left nothing behind: {log.read_text()[-2_000:]}")
    lines = path.read_text().splitlines()
    return [(int(number), int(at_us)) for number, at_us in map(str.split, lines)]


def run_peer(peer: Peer, workload: str) -> tuple[Outcome, list[int]]:
    """On a fresh server; and once more, with more time, when enqueueing took too long."""
    ahead_s = READY_S + WORKLOADS[workload] / peer.enqueued_per_s
    try:
        return run_peer_once(peer, workload, ahead_s)
    except TooSlow as slow:
        return run_peer_once(peer, workload, READY_S + slow.seconds * 2)


def run_peer_once(peer: Peer, workload: str, ahead_s: float) -> tuple[Outcome, list[int]]:
    with durable_server() as server:
        program_s, server_s = _children_cpu_s(), tree_cpu_s(server.pid)
        enqueued = enqueue(peer, server, workload, ahead_s)
        starts = work(peer, server, enqueued.dues_us)
        used_s = _children_cpu_s() - program_s
        outcome = Outcome(enqueued.seconds, starts, used_s, tree_cpu_s(server.pid) - server_s)
    return outcome, enqueued.dues_us


async def run_ours(batch: int, workload: str) -> tuple[Outcome, list[int]]:
    async with running_stack() as stack:
        jobs = WORKLOADS[workload]
        dues_us = dues_from(start_in(READY_S + jobs / 3_000), workload)
        cpu_s, begun_s = time.process_time(), time.perf_counter()
        await stack.register(dues_us, batch=batch)
        enqueue_s = time.perf_counter() - begun_s
        registering_s = time.process_time() - cpu_s
        async with asyncio.timeout(dues_us[-1] / SECOND - time.time() + WAIT_LIMIT_S):
            await stack.until_settled(jobs)
        program_s = registering_s + stack.shard_usage().cpu_s
        worker_s, server_s = stack.worker_usage().cpu_s, stack.server_cpu_s()
        arrivals = stack.stop()
    starts = numbered(arrivals, dues_us)
    return Outcome(enqueue_s, starts, program_s, server_s, worker_s), dues_us


def numbered(arrivals: Sequence[Arrival], dues_us: Sequence[int]) -> list[tuple[int, int]]:
    """Starts as the peers write them. Of jobs that are due together any may have any number."""
    free: dict[int, list[int]] = defaultdict(list)
    for number, due_us in enumerate(dues_us):
        free[due_us].append(number)
    numbers: dict[str, int] = {}
    for arrival in arrivals:
        if arrival.run_id not in numbers:
            numbers[arrival.run_id] = free[arrival.due_us].pop()
    return [(numbers[arrival.run_id], arrival.at_us) for arrival in arrivals]


def lateness_us(outcome: Outcome, dues_us: Sequence[int]) -> list[float]:
    """Of every job, in order; of one that was not started it is without end."""
    first: dict[int, int] = {}
    for number, at_us in outcome.starts:
        first.setdefault(number, at_us)
    never = float("inf")
    return sorted(first.get(number, never) - due_us for number, due_us in enumerate(dues_us))


def figures(outcome: Outcome, late_us: Sequence[float]) -> dict[tuple[str, str], float]:
    jobs = len(late_us)
    found = {
        ("enqueued", "jobs/s"): jobs / outcome.enqueue_s,
        ("first started", "ms"): late_us[0] / 1_000,
        ("last started", "ms"): late_us[-1] / 1_000,
        ("late p50", "ms"): quantile(late_us, 0.5) / 1_000,
        ("late p99", "ms"): quantile(late_us, 0.99) / 1_000,
        ("CPU of the program, a job", "µs"): outcome.program_cpu_s / jobs * 1e6,
        ("CPU of Postgres, a job", "µs"): outcome.server_cpu_s / jobs * 1e6,
        ("not started", "jobs"): sum(each == float("inf") for each in late_us),
        ("started again", "jobs"): len(outcome.starts) - len(dict(outcome.starts)),
    }
    if outcome.worker_cpu_s is not None:
        found["CPU of the worker, a job", "µs"] = outcome.worker_cpu_s / jobs * 1e6
    return found


def draw(record: Record, directory: Path) -> None:
    """How many had started, over time after the second; and how lateness at a steady rate is."""
    hot, steady = (
        {name: late_us for (of, name), late_us in record.samples.items() if of == workload}
        for workload in WORKLOADS
    )
    if hot:
        plot_progress(directory / "peers_hot_second.png", hot)
    if steady:
        plot_distribution(directory / "peers_lateness.png", steady)


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("workload", list(WORKLOADS))
@pytest.mark.parametrize("name", [OURS, SINGLE, *(peer.name for peer in PEERS)])
async def test_peer(record: Record, name: str, workload: str) -> None:
    rounds: list[dict[tuple[str, str], float]] = []
    jobs = WORKLOADS[workload]
    with record.failing_as(workload, name):
        for _ in range(ROUNDS):
            if name in (OURS, SINGLE):
                outcome, dues_us = await run_ours(500 if name == OURS else 1, workload)
            else:
                peer = next(peer for peer in PEERS if peer.name == name)
                assert peer.is_installed(), "it is not installed: see what make bench-peers says"
                outcome, dues_us = await asyncio.to_thread(run_peer, peer, workload)
            late_us = lateness_us(outcome, dues_us)
            rounds.append(figures(outcome, late_us))
            record.samples[workload, name] = late_us
        for figure, unit in rounds[0]:
            value = statistics.median(each[figure, unit] for each in rounds)
            record.add(f"{workload}, {figure}", name, jobs, value, unit)
        missing = sum(each["not started", "jobs"] for each in rounds)
        assert not missing, f"{missing:.0f} jobs not started within {WAIT_LIMIT_S} s"


def _children_cpu_s() -> float:
    """Of all processes that were waited for, and those that they had waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
