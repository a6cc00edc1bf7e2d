"""One machine of a cluster: a Postgres under Patroni, and every way through the network to it.

Invariant: whatever runs on it has its working directory in the node's, so that all of it can be
killed, stopped and woken together, like a machine.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import asyncpg
import msgspec
from tests.faults.logbook import Connection
from tests.ha.keeper import inside, kill_all
from tests.ha.programs import Programs
from tests.ha.tunnel import HOST, Tunnel
from tests.ports import reserved_port
from tests.waiting import WAIT_LIMIT_S

from wheelsched.embedded.supervisor import die_with_parent

SUPERUSER = "wheelsched"
PASSWORD = "unused"
ASK_S = 1.0
END_S = 20.0
UNANSWERED = (
    *(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError),
    asyncpg.InternalClientError,  # it has been told meanwhile that the server ends
)
WAYS = ("clients", "replication", "patroni", "etcd")
PARAMETERS = {
    "max_connections": 100,
    "shared_buffers": "32MB",
    "wal_keep_size": "256MB",
    "fsync": "off",  # a process that is killed loses nothing by it, only a machine would
    "log_min_messages": "warning",
    "jit": "off",
    "timezone": "UTC",
}
HBA = (
    "local all all trust",
    "local replication all trust",
    f"host all all {HOST}/32 trust",
    f"host replication all {HOST}/32 trust",
)


class PatroniEnded(Exception):
    """a Patroni ended by itself, with the end of its log"""


class Node:
    """`tunnels` are the ways to it: of clients, of the standbys, of other Patronis; and to etcd."""

    def __init__(self, name: str, home: Path, programs: Programs) -> None:
        self.name = name
        self.directory = home / name
        self.data = self.directory / "data"
        self.programs = programs
        self._patroni: subprocess.Popen[bytes] | None = None
        self.tunnels: dict[str, Tunnel] = {}
        self._ports: dict[str, int] = {}

    async def open(self, stack: AsyncExitStack, etcd: int, dcs: dict[str, object]) -> None:
        """Makes its directories and its ways; nothing runs yet."""
        self.directory.mkdir()
        self.programs.account.own(self.directory)
        self._ports = {what: stack.enter_context(reserved_port()) for what in ("postgres", "rest")}
        targets = dict(
            zip(WAYS, (self.postgres_port,) * 2 + (self._ports["rest"], etcd), strict=True)
        )
        for way, target in targets.items():
            tunnel = Tunnel(stack.enter_context(reserved_port()), target)
            self.tunnels[way] = await stack.enter_async_context(tunnel)
        config = self.directory / "patroni.json"
        config.write_bytes(msgspec.json.encode(self._config(dcs)))
        self.programs.account.own(config)

    @property
    def postgres_port(self) -> int:
        return self._ports["postgres"]

    @property
    def address(self) -> str:
        """For clients."""
        return f"{HOST}:{self.tunnels['clients'].port}"

    @property
    def rest_url(self) -> str:
        return f"http://{HOST}:{self._ports['rest']}"

    def url(self, database: str) -> str:
        """Past every tunnel, for the experiment itself."""
        host = f"host={self.directory}&port={self.postgres_port}"
        return f"postgresql://{SUPERUSER}@/{database}?{host}"

    # What can be done to it.

    async def start(self) -> None:
        """Starts Patroni, which starts Postgres: as the primary, or as a standby of it."""
        for tunnel in self.tunnels.values():
            await tunnel.listen()
        with (self.directory / "patroni.log").open("ab") as log:
            self._patroni = subprocess.Popen(
                self.programs.command(*self.programs.patroni, "patroni.json"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - no threads of ours
            )

    def kill(self) -> None:
        """`kill -9` of Postgres and of its Patroni."""
        if self._patroni is not None:
            self._patroni.kill()
            kill_all(self.directory)
            self._patroni.wait(END_S)
            self._patroni = None
            # Its pid may still be that of a process that nobody has waited for.
            for lock in (self.data / "postmaster.pid", *self.directory.glob(".s.PGSQL.*")):
                lock.unlink(missing_ok=True)
        for way in ("clients", "replication", "patroni"):
            self.tunnels[way].refuse()

    def freeze(self) -> None:
        """SIGSTOP of everything that runs on it."""
        stopped: set[int] = set()
        while found := set(inside(self.directory)) - stopped:
            self._signal(found, signal.SIGSTOP)
            stopped |= found

    def wake(self) -> None:
        self._signal(inside(self.directory), signal.SIGCONT)

    def isolate(self) -> None:
        """The network to it and from it is a black hole."""
        for tunnel in self.tunnels.values():
            tunnel.hold()

    def rejoin(self) -> None:
        """The network is back. What was swallowed meanwhile is lost."""
        for tunnel in self.tunnels.values():
            tunnel.cut()
            tunnel.let_go()

    # What it says.

    async def connect(self, database: str = "postgres") -> Connection:
        return await asyncpg.connect(self.url(database), command_timeout=WAIT_LIMIT_S)

    async def ask(self, question: str) -> object:
        """The first value of an answer; None if there is no answer."""
        try:
            async with asyncio.timeout(ASK_S):
                connection = await self.connect()
                try:
                    return await connection.fetchval(question)
                finally:
                    connection.terminate()
        except UNANSWERED:
            return None

    async def is_primary(self) -> bool:
        if self._patroni is not None and self._patroni.poll() is not None:
            raise PatroniEnded((self.directory / "patroni.log").read_text()[-2000:])
        return await self.ask("SELECT NOT pg_is_in_recovery()") is True

    async def members(self) -> list[dict[str, object]]:
        """What Patroni says of each node of the cluster; nothing if it does not answer."""
        told = await fetch_json(f"{self.rest_url}/cluster")
        return msgspec.convert(told.get("members", []), list[dict[str, object]])

    async def switch_over(self, candidate: str) -> None:
        document = {"leader": self.name, "candidate": candidate}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.rest_url}/switchover", json=document) as response,
        ):
            assert response.status == 200, await response.text()

    @staticmethod
    def _signal(pids: Iterable[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _config(self, dcs: dict[str, object]) -> dict[str, object]:
        account = {"password": PASSWORD, "sslmode": "disable", "gssencmode": "disable"}
        return {
            "scope": "wheelsched",
            "name": self.name,
            "restapi": {
                "listen": f"{HOST}:{self._ports['rest']}",
                "connect_address": f"{HOST}:{self.tunnels['patroni'].port}",
            },
            "etcd3": {"hosts": [f"{HOST}:{self.tunnels['etcd'].port}"], "use_proxies": True},
            "bootstrap": {
                "dcs": dcs,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"{HOST}:{self.postgres_port}",
                "connect_address": f"{HOST}:{self.tunnels['replication'].port}",
                "data_dir": str(self.data),
                "bin_dir": str(self.programs.postgres),
                "pgpass": str(self.directory / "pgpass"),
                "use_unix_socket": True,
                "authentication": {
                    "superuser": {"username": SUPERUSER} | account,
                    "replication": {"username": "replicator"} | account,
                },
                "parameters": PARAMETERS | {"unix_socket_directories": str(self.directory)},
                "pg_hba": HBA,
            },
            "watchdog": {"mode": "off"},
        }


async def fetch_json(url: str) -> dict[str, object]:
    """The answer of a service; empty if there is none."""
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            return msgspec.json.decode(await response.read(), type=dict[str, object])
    except (aiohttp.ClientError, TimeoutError):
        return {}
