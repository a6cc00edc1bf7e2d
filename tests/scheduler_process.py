"""An instance of a service with its own scheduler: `python scheduler_process.py URL OPTIONS`.

OPTIONS is JSON: the `tasks` that it has, the `jobs` that it declares with their schedules, and the
options of the scheduler. Each call of a handler adds a row to the table `executed`. With a task
named `slow`, the handler ends when the table `go_on` has a row.
"""

import asyncio
import json
import os
import signal
import sys

import asyncpg

from wheelsched import Scheduler
from wheelsched.logs import write_logs
from wheelsched.worker import Run

INSERT = "INSERT INTO public.executed VALUES ($1, $2, $3, $4, $5)"


async def serve(scheduler: Scheduler, url: str, tasks: list[str], jobs: dict[str, str]) -> None:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=4)

    async def note(run: Run) -> None:
        task = (run.queue or "").partition(":")[2]
        await pool.execute(INSERT, task, run.job_name, run.run_id, run.token, os.getpid())
        while task == "slow" and not await pool.fetchval("SELECT count(*) FROM public.go_on"):
            await asyncio.sleep(0.05)

    async def handle(payload: object, run: Run) -> None:
        await note(run)

    for task in tasks:
        scheduler.task(task)(handle)
    for name, schedule in jobs.items():
        scheduler.job(schedule, name=name, overlap={"policy": "allow"})(note)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with scheduler:
        print("ready", flush=True)
        await stopping.wait()
    print("stopped", flush=True)
    await pool.close()


if __name__ == "__main__":
    write_logs("warning")
    given = json.loads(sys.argv[2])
    tasks, jobs = given.pop("tasks", []), given.pop("jobs", {})
    asyncio.run(serve(Scheduler(sys.argv[1], **given), sys.argv[1], tasks, jobs))
