"""How many bytes on disk a job, a run and a failed attempt take: tables, indexes and TOAST.

cd benchmarks && ../.venv/bin/python size.py [JOBS]

Jobs are registered, and runs armed and settled, by the store itself, in batches, on an embedded
Postgres. Each job has a payload of 20 bytes and no tags, and runs four times; one run in ten fails
its first attempt. Sizes are those after a vacuum.
"""

import asyncio
import shutil
import sys
import time
from pathlib import Path
from uuid import UUID, uuid4

from msgspec import Raw

from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.core.model import HttpTarget, Job, RunKey, RunState
from wheelsched.core.partition import PARTITIONS
from wheelsched.daemon.database import migrate_database
from wheelsched.embedded.account import make_throwaway_home, server_account
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.ports import (
    Caller,
    Claim,
    ClaimedRetry,
    ClaimedRun,
    Ending,
    Lease,
    Registration,
    Settled,
    Tenant,
)
from wheelsched.schedule.spec import Spec
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore

BATCH = 1_000
ROUNDS = 4
FAILS = 10  # one run in so many fails its first attempt
MINUTE_US = 60_000_000
TABLES = ("jobs", "timers", "runs", "attempts")
# Of a table, or of the tables of its days.
SIZE = """
    SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class
    WHERE oid = $1::text::regclass
       OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = $1::text::regclass)
"""


class Measured:
    """A store with one tenant, and jobs that run."""

    def __init__(self, store: PostgresStore, jobs: int) -> None:
        self._store = store
        self._caller = Caller(uuid4(), "size")
        self._start_us = time.time_ns() // 60_000_000_000 * MINUTE_US
        self._jobs = sorted((self._job(number) for number in range(jobs)), key=lambda j: j.job_id)
        self._token = 1 << 32

    def _job(self, number: int) -> Job:
        return Job(
            job_id=UUID(bytes=uuid4().bytes),
            tenant_id=self._caller.tenant_id,
            name=f"report-{number:08}",
            schedule=Raw(b'"* * * * *"'),
            spec=Spec(kind="cron", expression="* * * * *", timezone="UTC"),
            anchor_us=self._start_us,
            target=HttpTarget(url="https://example.org/hooks/report"),
            payload=Raw(b'{"report": "weekly"}'),
            created_at_us=self._start_us,
            updated_at_us=self._start_us,
        )

    async def register(self) -> None:
        tenant = Tenant(
            tenant_id=self._caller.tenant_id,
            name="size",
            job_quota=len(self._jobs),
            created_at_us=self._start_us,
        )
        await self._store.tenants.create("size", tenant)
        for first in range(0, len(self._jobs), BATCH):
            batch = [Registration(job, self._start_us) for job in self._jobs[first : first + BATCH]]
            await self._store.jobs.register(self._caller, batch)

    async def run(self) -> None:
        lease = await self._store.leases.join(uuid4(), 600_000_000)
        await self._store.leases.acquire(lease, range(PARTITIONS))
        for turn in range(ROUNDS):
            for first in range(0, len(self._jobs), BATCH):
                due_us = self._start_us + turn * MINUTE_US
                await self._run(lease, self._jobs[first : first + BATCH], due_us)

    async def _run(self, lease: Lease, jobs: list[Job], due_us: int) -> None:
        self._token += 2
        run = ClaimedRun(due_us, self._token)
        claims = [
            Claim(
                job_id=job.job_id,
                tenant_id=job.tenant_id,
                version=1,
                due_us=due_us,
                next_due_us=due_us + MINUTE_US,
                runs=(run,),
            )
            for job in jobs
        ]
        assert await self._store.timers.arm(lease, claims) == set()
        keys = [claim.key for claim in claims]
        failed, succeeded = keys[: len(keys) // FAILS], keys[len(keys) // FAILS :]
        await self._settle(succeeded, self._token, RunState.SUCCEEDED)
        await self._settle(failed, self._token, RunState.RETRYING, due_us + 1_000_000)
        again = [ClaimedRetry(key, due_us + 1_000_000, self._token + 1) for key in failed]
        await self._store.timers.arm_retries(lease, again)
        await self._settle(failed, self._token + 1, RunState.SUCCEEDED)

    async def _settle(
        self, keys: list[RunKey], token: int, state: RunState, retry_at_us: int | None = None
    ) -> None:
        ending = Ending(
            state=state,
            started_at_us=self._start_us,
            finished_at_us=self._start_us,
            lateness_us=1_000,
            http_status=200 if state is RunState.SUCCEEDED else 503,
            error="503 Service Unavailable" if retry_at_us else None,
            retry_at_us=retry_at_us,
        )
        await self._store.runs.settle([Settled(key, token, ending) for key in keys])


async def measure(url: str, jobs: int) -> None:
    """Fills a database, and prints what its rows take."""
    await migrate_database(url)
    async with await Database.open(StoreConfig(url=url, role="owner")) as database:
        measured = Measured(PostgresStore(database), jobs)
        await measured.register()
        await measured.run()
        rows = {"jobs": jobs, "timers": jobs, "runs": jobs * ROUNDS}
        rows["attempts"] = rows["runs"] // FAILS
        for table in TABLES:
            await database.fetch(f"VACUUM {table}")
            size = await database.fetchrow(SIZE, table)
            assert size
            heap, indexes = (round(int(each) / rows[table]) for each in size)
            sys.stdout.write(
                f"{table:10} {rows[table]:>9,} rows  {heap:>6} + {indexes:>4} bytes of indexes"
                f" = {heap + indexes} bytes each\n"
            )
        sys.stdout.write(f"{await database.fetchval('SELECT version()')}\n")


def main() -> None:
    """Measures on a server of its own."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    home: Path = make_throwaway_home(server_account(None), "wheelsched-size-")
    try:
        with EmbeddedPostgres.start(EmbeddedConfig(home=home)) as server:
            asyncio.run(measure(server.url, jobs))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
