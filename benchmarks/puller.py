"""A program whose handler does no work: notes when each run began, one call for each.

wheelsched worker puller:worker --queue benchmark:report
python puller.py DATABASE-URL CONCURRENCY

As a worker it pulls runs from an API. As a scheduler it is its own shard, and needs the database
alone. When it ends, it writes one line for each run to the file in PULLER_FILE: its id, and the
time at which its handler was called, in microseconds since 1970.
"""

import asyncio
import atexit
import gc
import os
import signal
import sys
import time
from pathlib import Path

import uvloop

from wheelsched import Scheduler
from wheelsched.cli.commands.worker import GC_THRESHOLDS
from wheelsched.worker import Run, Worker

APPLICATION, TASK = "benchmark", "report"
QUEUE = f"{APPLICATION}:{TASK}"
FILE = "PULLER_FILE"

starts: list[tuple[str, int]] = []
worker = Worker()


@worker.job()
async def note(payload: dict[str, str], run: Run) -> None:
    starts.append((run.run_id, time.time_ns() // 1_000))


def write_starts(path: str) -> None:
    Path(path).write_text("".join(f"{run_id} {at_us}\n" for run_id, at_us in starts))


async def schedule(url: str, concurrency: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    scheduler = Scheduler(url, application=APPLICATION, concurrency=concurrency)
    scheduler.task(TASK)(note)
    async with scheduler:
        gc.freeze()  # as docs/SCHEDULER.md recommends
        gc.set_threshold(*GC_THRESHOLDS)
        await stopped.wait()


if FILE in os.environ:
    atexit.register(write_starts, os.environ[FILE])
if __name__ == "__main__":
    uvloop.run(schedule(sys.argv[1], int(sys.argv[2])))
