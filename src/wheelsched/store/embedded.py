"""Before every stage: a real Postgres from a package, for whoever has none.

Invariant: a server that was started here ends with the last program that uses it.

`EmbeddedPostgres.start` takes a line to the supervisor of a home, or becomes the first holder
by starting one. Programs that name the same home share the server.
"""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self
from urllib.parse import quote

import msgspec

from wheelsched import errors
from wheelsched.config import EmbeddedConfig
from wheelsched.errors import DataDirectoryBusy, DataDirectoryUnreachable, EmbeddedServerFailure
from wheelsched.store.account import Account, data_home, server_account
from wheelsched.store.binaries import find_binaries
from wheelsched.store.cluster import (
    DATABASE,
    SOCKET_DIRECTORY,
    SUPERUSER,
    Cluster,
    make_home,
    runtime_directory,
)
from wheelsched.store.supervisor import Failed, Plan, Ready, Reply, Taken

UNIX_PORT = 5432  # part of the socket's file name, and no TCP port
RETRY_S = 0.02

SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "random_page_cost": "1.1",
    "jit": "off",
    "autovacuum_naptime": "15s",
    "autovacuum_vacuum_cost_limit": "2000",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class EmbeddedPostgres:
    """A line to a running server. Closing it, or ending in any way, gives the server up.

    A process that is forked from the holder holds the line too.
    """

    def __init__(self, line: socket.socket, cluster: Cluster, port: int | None) -> None:
        self._line = line
        self._cluster = cluster
        self._port = port

    @classmethod
    def start(cls, config: EmbeddedConfig) -> Self:
        """Starts the server of a home, or joins it. Blocks until it accepts connections."""
        account = server_account(config.account)
        home = (config.home or data_home(account)).expanduser().resolve()
        arguments = server_arguments(config)
        line, cluster, ready = _take_line(config, home, account, arguments)
        if ready.arguments != arguments:
            line.close()
            raise DataDirectoryBusy(
                f"{home} is already served with other settings: {' '.join(ready.arguments)}"
            )
        return cls(line, cluster, config.port)

    @property
    def url(self) -> str:
        """The address of the server on its unix socket."""
        return embedded_url(self._cluster.home, self._port)

    @property
    def tcp_url(self) -> str:
        """The address of the server on the loopback, with its password."""
        if self._port is None:
            raise EmbeddedServerFailure("this server has no TCP port; name one in its config")
        password = self._cluster.password_path.read_text()
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self._port}/{DATABASE}"

    @property
    def data_directory(self) -> Path:
        """Where the data is."""
        return self._cluster.data

    def stop(self) -> None:
        """Lets go. When this was the last line, returns after the server has ended."""
        with contextlib.suppress(OSError), self._line:
            self._line.shutdown(socket.SHUT_WR)
            while self._line.recv(4096):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def embedded_url(home: Path | None = None, port: int | None = None) -> str:
    """The address of the server of a home on its unix socket, whether it runs or not."""
    home = (home or data_home(server_account(None))).expanduser().resolve()
    directory = quote(str(runtime_directory(home) / SOCKET_DIRECTORY), safe="")
    return f"postgresql://{SUPERUSER}@/{DATABASE}?host={directory}&port={port or UNIX_PORT}"


def server_arguments(config: EmbeddedConfig) -> list[str]:
    """The command line options: on the line and not in a file, so that they follow the program."""
    settings = SETTINGS | config.settings
    settings["listen_addresses"] = "127.0.0.1" if config.port else ""
    settings["port"] = str(config.port or UNIX_PORT)
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _take_line(
    config: EmbeddedConfig, home: Path, account: Account, arguments: list[str]
) -> tuple[socket.socket, Cluster, Ready]:
    _refuse_foreign(home)
    binaries = find_binaries(_written_by(home))
    directory = str(binaries.directory)
    plan = Plan(str(home), directory, account, arguments, config.start_timeout_ms)
    cluster = plan.cluster()
    for _ in range(max(1, int(config.start_timeout_ms / 1000 / RETRY_S))):
        line = _join(cluster) or _found(plan, cluster)
        line.settimeout(config.start_timeout_ms / 1000)
        match _reply(line):
            case Ready() as ready:
                line.settimeout(None)
                return line, cluster, ready
            case Failed(error, reason):
                line.close()
                raise getattr(errors, error, EmbeddedServerFailure)(reason)
            case Taken() | None:
                # Its supervisor is between two steps: about to listen, or about to end.
                with line:
                    line.settimeout(RETRY_S)
                    with contextlib.suppress(OSError):
                        line.recv(1)
    raise DataDirectoryBusy(f"{home} is held by a process that does not answer")


def _refuse_foreign(home: Path) -> None:
    try:
        if (home / "PG_VERSION").exists():
            raise DataDirectoryBusy(
                f"{home} is itself the data directory of a Postgres; "
                "name the directory to keep one in"
            )
        make_home(home)
        (home / "supervisor.lock").touch(mode=0o600)
    except OSError as error:
        raise DataDirectoryUnreachable(f"{home} cannot be written: {error.strerror}") from error


def _written_by(home: Path) -> int | None:
    try:
        return int((home / "data/PG_VERSION").read_text())
    except OSError:
        return None


def _join(cluster: Cluster) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(str(cluster.line_path))
    except OSError:
        line.close()
        return None
    return line


def _found(plan: Plan, cluster: Cluster) -> socket.socket:
    """Starts a supervisor, in a session of its own: Ctrl-C is for us, the server ends after us."""
    ours, theirs = socket.socketpair()
    with theirs, cluster.open_log() as log:
        program = [sys.executable, "-m", "wheelsched.store.supervisor"]
        started = subprocess.run(  # noqa: S603 - ourselves
            [*program, msgspec.json.encode(plan).decode()],
            stdin=theirs.fileno(),
            stdout=log,
            stderr=log,
            cwd="/",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
            check=False,
        )
    if started.returncode:
        ours.close()
        raise EmbeddedServerFailure(f"the supervisor did not start: {cluster.log_tail()}")
    return ours


def _reply(line: socket.socket) -> Reply | None:
    """The first answer on a line, or None when it ends without one."""
    received = b""
    try:
        while not received.endswith(b"\n"):
            part = line.recv(4096)
            if not part:
                return None
            received += part
    except TimeoutError as error:
        line.close()
        raise EmbeddedServerFailure("the embedded Postgres did not start in time") from error
    except OSError:
        return None
    reply: Reply = msgspec.json.decode(received, type=Reply)
    return reply
