"""A durable Postgres that an experiment may kill, stop and start, and lie to about the time.

Invariant: whatever was done to it, `start` brings the same data back, and nothing else does.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from tests.postgres import reachable_directory

from wheelsched.config import EmbeddedConfig
from wheelsched.embedded.account import server_account
from wheelsched.embedded.binaries import find_binaries
from wheelsched.embedded.cluster import DATABASE, SUPERUSER, Cluster, make_home
from wheelsched.embedded.postgres import UNIX_PORT, server_arguments
from wheelsched.embedded.supervisor import die_with_parent
from wheelsched.store.schema.migrate import migrate

TEMPLATE = "migrated"
START_S = 60
POLL_S = 0.02
SETTINGS = {"shared_buffers": "64MB", "max_wal_size": "512MB"}

# Who owned what from when on, as the database itself saw it: in the transaction that made it so.
OWNERSHIP = """
CREATE SCHEMA faults;
CREATE TABLE faults.ownership (
    seen bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    partition smallint, epoch integer, owner uuid, ended text,
    offset_us bigint
);
CREATE FUNCTION faults.note() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = faults, wheelsched, pg_temp
AS $$
BEGIN
    INSERT INTO faults.ownership (partition, epoch, owner, ended)
    VALUES (NEW.partition, NEW.epoch, NEW.owner, CASE
        WHEN NEW.owner IS NOT NULL THEN NULL
        WHEN EXISTS (SELECT FROM shards WHERE shard_id = OLD.owner) THEN 'released'
        WHEN current_setting('faults.was_leaving', true) = 'false' THEN 'taken_over'
        ELSE 'left' END);
    RETURN NULL;
END $$;
CREATE FUNCTION faults.note_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('faults.was_leaving', OLD.is_leaving::text, true);
    RETURN OLD;
END $$;
CREATE TRIGGER note AFTER UPDATE ON wheelsched.partitions FOR EACH ROW
    WHEN (OLD.owner IS DISTINCT FROM NEW.owner OR OLD.epoch <> NEW.epoch)
    EXECUTE FUNCTION faults.note();
CREATE TRIGGER note_end BEFORE DELETE ON wheelsched.shards FOR EACH ROW
    EXECUTE FUNCTION faults.note_end();
GRANT USAGE ON SCHEMA faults TO PUBLIC;
"""

# Runs as they were, when their end, or the token of their claim, is written over.
OVERWRITTEN = """
CREATE TABLE faults.overwritten (LIKE wheelsched.runs);
CREATE FUNCTION faults.note_run() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = faults, pg_temp
AS $$
BEGIN
    INSERT INTO overwritten SELECT OLD.*;
    RETURN NULL;
END $$;
CREATE TRIGGER note_run AFTER UPDATE ON wheelsched.runs FOR EACH ROW
    WHEN (OLD.token <> NEW.token
        OR OLD.state IN ('succeeded', 'dead', 'skipped', 'cancelled')
            AND (OLD.state, OLD.finished_at) IS DISTINCT FROM (NEW.state, NEW.finished_at))
    EXECUTE FUNCTION faults.note_run();
"""


async def fill_database(url: str) -> None:
    """Migrates an empty database, and adds what an experiment notes in it."""
    connection = await asyncpg.connect(url)
    await migrate(connection)
    await connection.execute(
        "SELECT wheelsched.make_days(ARRAY(SELECT current_date + n FROM generate_series(-1, 2) n))"
    )
    await connection.execute(OWNERSHIP)
    await connection.execute(OVERWRITTEN)
    await connection.close()


class Server:
    """One Postgres on one directory. `environment` is added to what the server sees."""

    def __init__(self, home: Path, environment: dict[str, str] | None = None) -> None:
        make_home(home)
        self._account = server_account(None)
        self._cluster = Cluster(home, find_binaries().directory, self._account)
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._cluster.prepare()

    @property
    def socket_path(self) -> str:
        return f"{self._cluster.socket_directory}/.s.PGSQL.{UNIX_PORT}"

    @property
    def home(self) -> Path:
        return self._cluster.home

    def url(self, database: str = DATABASE) -> str:
        """Past every proxy, for the experiment itself."""
        host = self._cluster.socket_directory
        return f"postgresql://{SUPERUSER}@/{database}?host={host}&port={UNIX_PORT}"

    async def start(self) -> None:
        """Starts it, again and again while something of the one before is left."""
        async with asyncio.timeout(START_S):
            while not await self._launch():
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """`kill -9` of the postmaster."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """A fast shutdown: what runs is rolled back."""
        await self._end(signal.SIGINT)

    async def new_database(self) -> str:
        """The name of a migrated database that nobody else uses."""
        self._databases += 1
        name = f"experiment_{self._databases}"
        connection = await asyncpg.connect(self.url())
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        await connection.close()
        return name

    async def drop_database(self, name: str) -> None:
        connection = await asyncpg.connect(self.url())
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()

    async def make_template(self) -> None:
        connection = await asyncpg.connect(self.url())
        await connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        await connection.close()
        await fill_database(self.url(TEMPLATE))

    async def _launch(self) -> bool:
        arguments = server_arguments(EmbeddedConfig(settings=SETTINGS))
        with self._cluster.open_log() as log:
            self._process = process = subprocess.Popen(
                self._cluster.command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._cluster.environment() | self._environment,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - no threads of ours
                **self._account.credentials(),
            )
        while not self._cluster.is_ready(process.pid):
            if process.poll() is not None:
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        async with asyncio.timeout(START_S):
            while self._process.poll() is None:
                await asyncio.sleep(POLL_S)
        self._process = None


@asynccontextmanager
async def running_server(
    home: Path | None = None, environment: dict[str, str] | None = None
) -> AsyncIterator[Server]:
    """A server with a template of a migrated database, until the end of the block."""
    directory = home or reachable_directory()
    server = Server(directory, environment)
    try:
        await server.start()
        await server.make_template()
        yield server
    finally:
        await server.kill()
        if home is None:
            shutil.rmtree(directory, ignore_errors=True)
