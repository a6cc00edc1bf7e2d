"""Several instances of a service with schedulers of their own: real processes and Postgres."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.postgres import Connect
from tests.waiting import WAIT_LIMIT_S, until

from wheelsched import Scheduler
from wheelsched.store.connections.connection import Connection

pytestmark = pytest.mark.proof  # instances in processes of their own

PROCESS = Path(__file__).parents[1] / "scheduler_process.py"
EVERY_SECOND = {f"tick-{number}": "* * * * * *" for number in range(10)}
TABLES = """
    CREATE TABLE public.executed (
        task text, name text, run_id text, token bigint, pid integer
    );
    CREATE TABLE public.go_on (it boolean);
"""
UNFINISHED = """
    SELECT count(*) FROM wheelsched.runs
    WHERE state IN ('armed', 'running', 'retrying')
        AND due_at < clock_timestamp() - interval '15 seconds'
"""
REPEATED = "SELECT run_id FROM public.executed GROUP BY run_id, token HAVING count(*) > 1"
DEAD = "SELECT error FROM wheelsched.runs WHERE state = 'dead'"


class Services:
    """Instances of a service, and what they have executed."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self.connection = connection
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self, **options: object) -> asyncio.subprocess.Process:
        """Starts an instance, and returns when it works."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROCESS),
            self.url,
            json.dumps({"application": "shop"} | options),
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes.append(process)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), WAIT_LIMIT_S)
        assert line == b"ready\n"
        return process

    async def stop(self, process: asyncio.subprocess.Process) -> None:
        """Asks an instance to stop, and waits for its end."""
        process.terminate()
        assert await asyncio.wait_for(process.wait(), WAIT_LIMIT_S) == 0

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        process.kill()
        await process.wait()

    async def close(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                await self.kill(process)

    async def executed(self, **wanted: object) -> set[str]:
        """The runs that were executed."""
        rows = await self.connection.fetch("SELECT * FROM public.executed")
        return {row["run_id"] for row in rows if all(row[key] == wanted[key] for key in wanted)}

    async def until_executed(self, more: int, **wanted: object) -> None:
        """Waits until so many more runs were executed."""
        expected = len(await self.executed(**wanted)) + more

        async def are() -> bool:
            return len(await self.executed(**wanted)) >= expected

        await until(are)

    async def check(self) -> None:
        """Each attempt was executed once, each run has ended well, and none that is due is left.

        A run has a second attempt if a busy machine stalls its process for too long.
        """

        async def is_nothing_left() -> bool:
            return not await self.connection.fetchval(UNFINISHED)

        await until(is_nothing_left)
        repeated = await self.connection.fetch(REPEATED)
        assert repeated == []
        assert await self.connection.fetch(DEAD) == []

    async def owners(self) -> int:
        """How many shards own partitions."""
        query = "SELECT count(DISTINCT owner) FROM wheelsched.partitions"
        return int(await self.connection.fetchval(query))


@pytest.fixture
async def services(database: str, connect: Connect) -> AsyncIterator[Services]:
    connection = await asyncpg.connect(database, command_timeout=60)
    await connection.execute(TABLES)
    services = Services(database, connection)
    yield services
    await services.close()
    connection.terminate()


async def test_two_instances_execute_each_run_once(services: Services) -> None:
    first = await services.start(jobs=EVERY_SECOND)
    second = await services.start(jobs=EVERY_SECOND)
    for process in (first, second):
        await services.until_executed(20, pid=process.pid)
    await services.check()
    await services.stop(first)
    await services.until_executed(20)
    await services.stop(second)
    await services.check()


async def test_an_instance_goes_on_when_the_other_is_killed(services: Services) -> None:
    first = await services.start(jobs=EVERY_SECOND)
    second = await services.start(jobs=EVERY_SECOND)
    for process in (first, second):
        await services.until_executed(20, pid=process.pid)
    await services.kill(first)
    for name in EVERY_SECOND:
        await services.until_executed(1, pid=second.pid, name=name)
    await services.check()


async def test_a_task_that_only_one_instance_knows(services: Services) -> None:
    """Its runs are owned by the shards of both, and executed by the one that knows it."""
    await services.start(tasks=["other"])
    knowing = await services.start(tasks=["remind"])

    async def own_both() -> bool:
        return await services.owners() == 2

    await until(own_both)
    async with Scheduler(services.url, application="shop", concurrency=0) as scheduler:
        for number in range(40):
            await scheduler.schedule(f"remind-{number}", at="in 1s", task="remind", elsewhere=True)
        await services.until_executed(40)
    assert len(await services.executed(pid=knowing.pid)) == 40
    await services.check()


async def test_old_and_new_code_together_fail_nothing(services: Services) -> None:
    """A rolling deployment: `tick-0` stays, `old` goes, `new` comes."""
    stays, old, new = ({name: "* * * * * *"} for name in ("tick-0", "old", "new"))
    before = [await services.start(jobs=stays | old, release=1) for _ in range(2)]
    await services.until_executed(3, name="old")
    after = []
    for process in before:
        after.append(await services.start(jobs=stays | new, release=2, undeclared="delete"))
        await services.stop(process)
        await services.start(jobs=stays | old, release=1, undeclared="delete")
        await services.until_executed(3, name="new")
        await services.until_executed(3, name="tick-0")
    pids = {process.pid for process in after}
    rows = await services.connection.fetch("SELECT name, pid FROM public.executed")
    assert {row["pid"] for row in rows if row["name"] == "new"} <= pids
    await services.check()


async def test_a_stopped_instance_finishes_its_run(services: Services) -> None:
    process = await services.start(tasks=["slow"], stop_timeout_s=WAIT_LIMIT_S)
    async with Scheduler(services.url, application="shop", concurrency=0) as scheduler:
        await scheduler.schedule("one", at="in 1s", task="slow", elsewhere=True)
        await services.until_executed(1)
        process.terminate()
        await services.connection.execute("INSERT INTO public.go_on VALUES (true)")
        assert await asyncio.wait_for(process.wait(), WAIT_LIMIT_S) == 0

    async def has_succeeded() -> bool:
        query = "SELECT state FROM wheelsched.runs"
        return bool(await services.connection.fetchval(query) == "succeeded")

    await until(has_succeeded)
    await services.check()
