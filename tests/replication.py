"""A standby for the tests: a copy of a running primary, which follows it until it is promoted.

Invariant: it has the databases, roles and settings of its primary.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
from tests.postgres import reachable_directory, temporary_server
from tests.waiting import until

from wheelsched.config import EmbeddedConfig
from wheelsched.embedded.account import server_account
from wheelsched.embedded.binaries import find_binaries
from wheelsched.embedded.cluster import DATABASE, SUPERUSER, Cluster
from wheelsched.embedded.postgres import UNIX_PORT, EmbeddedPostgres, server_arguments
from wheelsched.embedded.supervisor import die_with_parent

REPLICATES = {"wal_level": "replica", "max_wal_senders": "8", "shared_buffers": "32MB"}


@contextmanager
def temporary_primary() -> Iterator[EmbeddedPostgres]:
    """A server of which there may be standbys."""
    with temporary_server(**REPLICATES) as server:
        yield server


def socket_of(url: str) -> str:
    """The path of the socket in the URL of an embedded server."""
    options = parse_qs(urlsplit(url).query)
    return f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}"


class Standby:
    """A server that follows another one."""

    def __init__(self, cluster: Cluster, process: "subprocess.Popen[bytes]") -> None:
        self._cluster = cluster
        self._process = process

    @property
    def url(self) -> str:
        host = self._cluster.socket_directory
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port={UNIX_PORT}"

    async def promote(self) -> None:
        """Makes it a primary, and returns when it accepts writes."""
        connection = await asyncpg.connect(self.url)
        assert await connection.fetchval("SELECT pg_promote()")
        await connection.close()

    async def is_reachable(self) -> bool:
        try:
            connection = await asyncpg.connect(self.url)
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True


@asynccontextmanager
async def running_standby(primary: EmbeddedPostgres) -> AsyncIterator[Standby]:
    """A standby of a server, until the end of the block."""
    account = server_account(None)
    home = reachable_directory()
    cluster = Cluster(home, find_binaries().directory, account)
    _copy(primary, cluster.data)
    for path in (cluster.data, *cluster.data.rglob("*")):
        account.own(path)
    cluster.prepare()
    arguments = server_arguments(EmbeddedConfig(settings=REPLICATES | {"fsync": "off"}))
    with cluster.open_log() as log:
        process = subprocess.Popen(
            cluster.command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=cluster.environment(),
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - no threads of ours
            **account.credentials(),
        )
    try:
        standby = Standby(cluster, process)
        await until(standby.is_reachable)
        yield standby
    finally:
        process.send_signal(signal.SIGQUIT)
        await asyncio.to_thread(process.wait, 60)
        shutil.rmtree(home, ignore_errors=True)


def _copy(primary: EmbeddedPostgres, data: Path) -> None:
    """Copies the data of a primary, with the settings that make the copy follow it."""
    program = find_binaries().directory / "pg_basebackup"
    command = [str(program), "-D", str(data), "-d", primary.url, "--checkpoint=fast", "-R"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
