"""The demo worker: a separate process that records the runs it receives.

Invariant: every arrival of a run is recorded before the response. Records are not synced to disk,
because the machine does not crash, only the shard does.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID

import msgspec
import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler

from wheelsched.cli.demonstration.records import RECORD, WorkerSetup
from wheelsched.clock import SystemClock
from wheelsched.config import WorkerConfig
from wheelsched.daemon.parent import exit_with_parent
from wheelsched.logs import write_logs
from wheelsched.worker import MemoryOnce, Worker
from wheelsched.worker.deduplication import Claim

PATH: Final = "/runs"

arrived_us: ContextVar[int] = ContextVar("arrived_us")


class RecordingOnce:
    """In-memory deduplication that records every key it is asked about."""

    def __init__(self, records: BinaryIO) -> None:
        self._records = records
        self._inner = MemoryOnce(capacity=10_000_000)

    def once(self, key: str) -> AbstractAsyncContextManager[Claim]:
        return self._once(key)

    @asynccontextmanager
    async def _once(self, key: str) -> AsyncIterator[Claim]:
        job_id, _, rendered = key.partition("/")
        due_s = rendered.rpartition(":")[2]
        async with self._inner.once(key) as claim:
            record = RECORD.pack(UUID(job_id).bytes, int(due_s), arrived_us.get(), claim.is_first)
            self._records.write(record)
            yield claim


@web.middleware
async def note_arrival(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Records when a request arrived, for the runs in it."""
    arrived_us.set(SystemClock.wall_us())
    return await handler(request)


async def serve(secret: str, records: BinaryIO) -> None:
    """Receives callbacks until the process ends."""
    worker = Worker(
        [secret],
        deduplicate=RecordingOnce(records),
        config=WorkerConfig(concurrency=1_000, max_waiting=1_000_000),
    )

    @worker.job()
    async def do_nothing(_: dict[str, int]) -> None:
        """Does nothing; the record is the effect."""

    app = web.Application(middlewares=[note_arrival])
    app.add_routes(worker.routes(PATH))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1_024).start()
    sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}{PATH}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    """`python -m wheelsched.cli.demonstration.worker`; reads its setup from stdin."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSetup)
    exit_with_parent()
    write_logs("error")
    with (
        Path(orders.records).open("ab", buffering=0) as records,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve(orders.secret, records))


if __name__ == "__main__":
    main()
