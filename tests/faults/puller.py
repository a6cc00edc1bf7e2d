"""A worker that pulls and remembers: `python puller.py LOG NAME URL TENANT=TOKEN…`.

Invariant: what it got is on disk before it begins. It forgets what it has done: a run that it gets
again it does again. What a queue is named after is what it does with a run; a file beside the log
makes it good-natured.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import uvloop

from wheelsched.config import WorkerConfig
from wheelsched.worker import Run, Worker
from wheelsched.worker.deduplication import FIRST, Claim

LEASE_MS = 6_000
CONCURRENCY = 50
QUEUES = ("quick", "hold")
POLL_S = 0.05


class Log:
    """Lines, as `records` reads them. A process that starts again goes on with its numbers."""

    def __init__(self, path: Path) -> None:
        known = path.read_bytes() if path.exists() else b""
        whole = known[: known.rfind(b"\n") + 1]  # the end may be torn
        path.write_bytes(whole)
        self._numbers = sum(line.startswith(b"{") for line in whole.splitlines())
        self._file: IO[bytes] = path.open("ab")

    def note(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fdatasync(self._file.fileno())

    def arrive(self, arrival: dict[str, object]) -> int:
        self.note(arrival)
        self._numbers += 1
        return self._numbers - 1


class Forgetful:
    """`Deduplication` of a worker that does everything again."""

    @asynccontextmanager
    async def once(self, key: str) -> AsyncIterator[Claim]:
        yield FIRST


def now_us() -> int:
    return time.time_ns() // 1_000


def make_worker(log: Log, calm: Path, name: str, tenant: str) -> Worker:
    worker = Worker(deduplicate=Forgetful(), config=WorkerConfig(lease_ms=LEASE_MS))

    @worker.job()
    async def handle(payload: dict[str, Any], run: Run) -> None:
        number = log.arrive(
            {
                "job": str(run.job_id),
                "tenant": tenant,
                "signer": payload["tenant"],
                "due_us": int(run.run_id.partition("-")[2]),
                "scheduled_us": run.scheduled_us,
                "key": run.idempotency_key,
                "token": run.token,
                "attempt": run.attempt,
                "trigger": run.trigger.value,
                "url": f"queue:{run.queue}",
                "queue": run.queue,
                "worker": name,
                "mark": payload["mark"],
                "at_us": now_us(),
                "received_us": now_us(),
            }
        )
        while run.queue == "hold" and not calm.exists():  # noqa: ASYNC240 - a look
            await asyncio.sleep(POLL_S)
        log.note([number, number, "ok", now_us()])

    return worker


async def pull(path: Path, name: str, url: str, tokens: list[str]) -> None:
    log, calm = Log(path), path.with_suffix(".calm")
    pairs = [one.partition("=") for one in tokens]
    workers = {token: make_worker(log, calm, name, tenant) for tenant, _, token in pairs}
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with asyncio.TaskGroup() as tasks:
        for token, worker in workers.items():
            tasks.create_task(
                worker.run(url, queues=QUEUES, token=token, concurrency=CONCURRENCY, worker_id=name)
            )
        print("pulling", flush=True)
        await stopped.wait()
        await asyncio.gather(*(worker.stop() for worker in workers.values()))


if __name__ == "__main__":
    uvloop.run(pull(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
