"""Bad days: each has an error with a name, a line in the log, and an end."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs
from tests.postgres import Connect, reachable_directory, temporary_server, with_database
from tests.proxy import Proxy
from tests.waiting import until

from wheelsched.config import StoreConfig
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.partition import PARTITIONS
from wheelsched.embedded.account import server_account
from wheelsched.errors import (
    PoolExhausted,
    RightMissing,
    SchemaTooNew,
    SchemaTooOld,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from wheelsched.ports import Claim, ClaimedRun, Ending, Lease, Settled
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.migrate import migrate

pytestmark = pytest.mark.proof  # each breaks a server of its own

DUE_US = 1_800_000_000_000_000
TTL_US = 60_000_000
LONG_MS = 60_000
HASTY_MS = 3_000  # longer than a busy machine takes for what is not held up
ARMING = """
    SELECT true FROM pg_stat_activity
    WHERE query LIKE '%WITH fence%' AND state = 'active' AND pid != pg_backend_pid()
"""
SUCCEEDED = Ending(state=RunState.SUCCEEDED)
TENANT = uuid4()


def config(url: str, **changes: object) -> StoreConfig:
    return StoreConfig(**({"url": url, "role": "shard"} | changes))  # type: ignore[arg-type]


def claim(job_id: UUID, token: int = 1) -> Claim:
    return Claim(
        job_id=job_id,
        tenant_id=TENANT,
        version=1,
        due_us=DUE_US,
        next_due_us=DUE_US + TTL_US,
        runs=(ClaimedRun(DUE_US, token),),
    )


@asynccontextmanager
async def opened(settings: StoreConfig) -> AsyncIterator[tuple[PostgresStore, Database]]:
    async with await Database.open(settings) as database:
        yield PostgresStore(database), database


async def own_all(store: PostgresStore) -> Lease:
    lease = await store.leases.join(uuid4(), TTL_US)
    await store.leases.acquire(lease, range(PARTITIONS))
    return lease


@pytest.fixture
async def owner(database: str, connect: Connect) -> Connection:
    owner = await connect(database)
    await owner.execute("SELECT make_days(ARRAY['2027-01-15']::date[])")
    return owner


async def add_timer(owner: Connection) -> UUID:
    job_id = uuid4()
    await owner.execute("INSERT INTO timers VALUES ($1, 7, 1, $2)", job_id, DUE_US)
    return job_id


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(database)
    options = parse_qs(parts.query)
    async with Proxy(f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}") as proxy:
        yield proxy


def through(proxy: Proxy, database: str, server_password: str) -> str:
    name = urlsplit(database).path
    return f"postgresql://wheelsched:{server_password}@127.0.0.1:{proxy.port}{name}?sslmode=disable"


async def test_a_connection_cut_after_the_commit_was_sent(
    database: str, owner: Connection, proxy: Proxy
) -> None:
    """The write happened and nobody was told. Sending it again changes nothing.

    Each statement runs once before, so that the one that is cut is a single message.
    """
    job_id, other_id = await add_timer(owner), await add_timer(owner)
    settings = config(through(proxy, database, "unused"), connections=1)
    async with opened(settings) as (store, _):
        lease = await own_all(store)
        assert await store.timers.arm(lease, [claim(other_id)]) == set()
        proxy.hold_answers()
        arming = asyncio.create_task(store.timers.arm(lease, [claim(job_id)]))
        await until(lambda: owner.fetchval("SELECT count(*) = 2 FROM runs"))
        with capture_logs() as logs:
            proxy.cut()
            with pytest.raises(StoreUnavailable):
                await arming
        assert logs[0]["event"] == "store.failed"

        key = RunKey(job_id, DUE_US)
        assert await store.timers.arm(lease, [claim(job_id, token=2)]) == {key}
        (checked,) = await store.runs.revalidate([key])
        assert (checked.run.state, checked.run.token) == (RunState.ARMED, 1)

        done = Settled(key, 1, SUCCEEDED)
        other = Settled(RunKey(other_id, DUE_US), 1, SUCCEEDED)
        assert await store.runs.settle([other]) == set()
        proxy.hold_answers()
        settling = asyncio.create_task(store.runs.settle([done]))
        await until(lambda: owner.fetchval("SELECT bool_and(state = 'succeeded') FROM runs"))
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await settling
        assert await store.runs.settle([done]) == set()
        assert await owner.fetchval("SELECT max(attempt) FROM runs") == 1


async def test_a_database_that_answers_no_more_is_given_up(database: str, proxy: Proxy) -> None:
    settings = config(through(proxy, database, "unused"), lease_timeout_ms=500)
    async with opened(config(database)) as (patient, _), opened(settings) as (store, _):
        lease = await own_all(patient)

        async def is_renewed() -> bool:
            try:
                await store.leases.renew(lease, TTL_US)
            except StoreUnavailable:  # on a busy machine
                return False
            return True

        await until(is_renewed)
        proxy.hold_answers()
        with pytest.raises(StoreTimeout):
            await store.leases.renew(lease, TTL_US)
        proxy.cut()
        await until(is_renewed)


async def server_started(url: str) -> datetime | None:
    """When the server started that answers now; None if none answers."""
    try:
        connection = await asyncpg.connect(url, timeout=5)
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return None
    try:
        return cast("datetime", await connection.fetchval("SELECT pg_postmaster_start_time()"))
    finally:
        connection.terminate()


async def test_postgres_killed_and_restarted() -> None:
    """The same pools go on when it is back, and the lease with them."""
    with temporary_server() as server:
        connection = await asyncpg.connect(server.url)
        await migrate(connection)
        await connection.close()
        async with opened(config(server.url, lease_timeout_ms=LONG_MS)) as (store, _):
            lease = await own_all(store)
            first = await server_started(server.url)
            pid_file = server.data_directory / "postmaster.pid"
            os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)

            async def is_restarted() -> bool:
                # Backends outlive a killed postmaster for a moment, and answer.
                return await server_started(server.url) not in (None, first)

            async def is_back() -> bool:
                try:
                    await store.leases.renew(lease, TTL_US)
                    await store.timers.load(range(PARTITIONS), DUE_US)
                except StoreUnavailable:
                    return False
                return True

            await until(is_restarted)
            await until(is_back)
            assert len((await store.leases.survey()).shards) == 1


async def test_no_postgres_at_all() -> None:
    with pytest.raises(StoreUnavailable):
        await Database.open(config("postgresql://nobody@127.0.0.1:1/nothing"))


async def test_connections_are_given_out_in_the_order_of_asking(database: str) -> None:
    """Whoever asks in the moment that one is given back does not overtake those who wait."""
    numbers, given = count(), []
    async with await Database.open(config(database, connections=1)) as pools:

        async def use(pause: int) -> None:
            for _ in range(10):
                for _ in range(pause):
                    await asyncio.sleep(0)
                number = next(numbers)
                async with pools.connection():
                    given.append(number)

        await asyncio.gather(*map(use, range(50)))
    assert given == sorted(given)


async def test_the_lease_is_renewed_when_every_connection_is_in_use(database: str) -> None:
    settings = config(
        database, connections=1, command_timeout_ms=HASTY_MS, lease_timeout_ms=LONG_MS
    )
    async with opened(settings) as (store, pools):
        lease = await own_all(store)
        async with pools.connection():
            with pytest.raises(PoolExhausted):
                await store.timers.load([1], DUE_US)
            await store.leases.renew(lease, TTL_US)
        await store.timers.load([1], DUE_US)


async def test_a_statement_that_waits_too_long_is_ended_on_the_server_too(
    database: str, owner: Connection, connect: Connect
) -> None:
    locking = await connect(database)  # within a transaction, the server shows no news of others
    job_id = await add_timer(owner)
    patient = config(database, lease_timeout_ms=LONG_MS)
    hasty = config(database, command_timeout_ms=HASTY_MS)
    async with opened(patient) as (store, _), opened(hasty) as (hasty_store, _):
        lease = await own_all(store)
        async with locking.transaction():
            await locking.execute("SELECT FROM timers FOR UPDATE")
            arming = asyncio.create_task(hasty_store.timers.arm(lease, [claim(job_id)]))
            await until(lambda: owner.fetchval(ARMING + " AND wait_event_type = 'Lock'"))
            with pytest.raises(StoreTimeout):
                await arming
            await until(lambda: owner.fetchval(f"SELECT NOT EXISTS ({ARMING})"))
        assert await owner.fetchval("SELECT count(*) FROM runs") == 0
        assert await store.timers.arm(lease, [claim(job_id)]) == set()


async def test_a_snapshot_held_open_elsewhere_stops_nothing(
    database: str, owner: Connection, connect: Connect
) -> None:
    """Nothing can be cleaned up behind it; the same timer is armed and settled all the same."""
    job_id = await add_timer(owner)
    holder = await connect(database)
    async with (
        holder.transaction(isolation="repeatable_read", readonly=True),
        opened(config(database)) as (store, _),
    ):
        await holder.fetch("SELECT FROM timers")
        lease = await own_all(store)
        for minute in range(50):
            due_us = DUE_US + minute * TTL_US
            moved = Claim(
                job_id=job_id,
                tenant_id=TENANT,
                version=1,
                due_us=due_us,
                next_due_us=due_us + TTL_US,
                runs=(ClaimedRun(due_us, minute + 1),),
            )
            assert await store.timers.arm(lease, [moved]) == set()
            key = RunKey(job_id, due_us)
            done = Settled(key, minute + 1, SUCCEEDED)
            assert await store.runs.settle([done]) == set()
            await store.leases.renew(lease, TTL_US)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Eight megabytes, where mounting is allowed."""
    directory = reachable_directory()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0777", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        directory.rmdir()
        pytest.skip("mounting a small disk is not allowed here")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)
    directory.rmdir()


async def test_a_full_disk_has_a_name_and_passes(
    database: str, owner: Connection, small_disk: Path
) -> None:
    account = server_account(None)
    location = small_disk / "space"
    location.mkdir(mode=0o700)
    account.own(location)
    await owner.execute(f"CREATE TABLESPACE small LOCATION '{location}'")
    await owner.execute("ALTER TABLE runs_20270115 SET TABLESPACE small")
    await owner.execute(
        "INSERT INTO timers SELECT gen_random_uuid(), 7, 1, $1 FROM generate_series(1, 60000)",
        DUE_US,
    )
    async with opened(config(database)) as (store, _):
        lease = await own_all(store)
        timers = list(await store.timers.load([7], DUE_US))
        claims = [claim(job_id) for job_id, _, _ in timers]
        with capture_logs() as logs, pytest.raises(StoreFull):
            await store.timers.arm(lease, claims)
        assert logs[-1]["error"] == "StoreFull"
        await store.leases.renew(lease, TTL_US)
        await owner.execute("ALTER TABLE runs_20270115 SET TABLESPACE pg_default")
        assert await store.timers.arm(lease, claims) == set()
        assert await owner.fetchval("SELECT count(*) FROM runs") == 60_000
    await owner.execute("DROP TABLESPACE small")


async def test_an_account_without_the_role(database: str, owner: Connection) -> None:
    await owner.execute("CREATE ROLE stranger LOGIN")
    try:
        with pytest.raises(RightMissing, match="wheelsched_shard"):
            await Database.open(config(database.replace("wheelsched@", "stranger@")))
    finally:
        await owner.execute("DROP ROLE stranger")


async def test_a_role_without_the_right(database: str) -> None:
    async with opened(config(database, role="api")) as (store, _):
        with capture_logs() as logs, pytest.raises(RightMissing):
            await store.leases.join(uuid4(), TTL_US)
        assert logs[0]["sqlstate"] == "42501"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO migrations VALUES (9999, 'future', 'x')", SchemaTooNew),
        (
            "DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)",
            SchemaTooOld,
        ),
    ],
)
async def test_a_schema_that_is_not_ours(
    database: str, owner: Connection, statement: str, error: type[StoreError]
) -> None:
    """It is refused, and no connection is left behind."""
    await owner.execute(statement)
    with pytest.raises(error):
        await Database.open(config(database))
    await until(
        lambda: owner.fetchval(
            "SELECT count(*) = 0 FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'wheelsched-%'"
        )
    )


async def test_an_empty_database(server_url: str) -> None:
    with pytest.raises(StoreError):
        await Database.open(config(with_database(server_url, "template1")))
