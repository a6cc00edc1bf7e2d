"""A process with a worker that pulls, over links: `python puller_process.py DATABASE_URL TENANT`.

It writes a line for each run that it gets and for each answer to its outcome.
"""

import asyncio
import sys
from collections.abc import Sequence
from uuid import UUID

import uvloop

from wheelsched.clock import SystemClock
from wheelsched.config import LinkConfig, StoreConfig
from wheelsched.core.model import format_run_id
from wheelsched.core.outcome import Succeeded
from wheelsched.daemon.bootstrap import open_clock
from wheelsched.daemon.links import open_distributor
from wheelsched.logs import write_logs
from wheelsched.ports.work import QueueRun, WorkerOutcome
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore

CREDITS = 20


async def pull(url: str, tenant_id: UUID) -> None:
    machine = SystemClock()
    taken: asyncio.Queue[Sequence[QueueRun]] = asyncio.Queue()
    async with await Database.open(StoreConfig(url=url, role="api")) as database:
        store = PostgresStore(database)
        clock = await open_clock(machine, store.leases)
        async with open_distributor(LinkConfig(), store, machine, clock) as distributor:
            subscription = distributor.subscribe(
                tenant_id, ["billing"], lambda runs, _: taken.put_nowait(runs), lambda _: None
            )
            subscription.add_credits(CREDITS)
            while True:
                runs = await taken.get()
                for run in runs:
                    print("got", format_run_id(run.attempt.key), flush=True)
                answers = await distributor.finish(
                    tenant_id,
                    [WorkerOutcome(attempt=run.attempt, outcome=Succeeded()) for run in runs],
                )
                subscription.add_credits(len(runs))
                for run, answer in zip(runs, answers, strict=True):
                    word = "accepted" if answer.is_accepted else "refused"
                    print(word, format_run_id(run.attempt.key), flush=True)


if __name__ == "__main__":
    write_logs("warning")
    uvloop.run(pull(sys.argv[1], UUID(sys.argv[2])))
