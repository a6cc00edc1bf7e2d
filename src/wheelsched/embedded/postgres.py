"""Starts an embedded Postgres, or connects to one that is running.

Invariant: the server ends with the last program that uses it.

`EmbeddedPostgres.start` connects to the supervisor of a home, or starts one. Programs with the same
home share the server.
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
from wheelsched.embedded.account import Account, data_home, server_account
from wheelsched.embedded.binaries import find_binaries
from wheelsched.embedded.cluster import (
    DATABASE,
    SOCKET_DIRECTORY,
    SUPERUSER,
    Cluster,
    make_home,
    runtime_directory,
)
from wheelsched.embedded.supervisor import Failed, Plan, Ready, Reply, Taken
from wheelsched.errors import DataDirectoryBusy, DataDirectoryUnreachable, EmbeddedServerFailure

UNIX_PORT = 5432  # part of the socket's file name; not a TCP port
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
    """Holds a running server, by a connection to its supervisor.

    The server is released when the connection is closed or the process ends in any way. A forked
    child process holds the connection too.
    """

    def __init__(self, connection: socket.socket, cluster: Cluster, port: int | None) -> None:
        self._connection = connection
        self._cluster = cluster
        self._port = port

    @classmethod
    def start(cls, config: EmbeddedConfig) -> Self:
        """Start the server of a home, or join it. Blocks until it accepts connections."""
        account = server_account(config.account)
        home = (config.home or data_home(account)).expanduser().resolve()
        arguments = server_arguments(config)
        connection, cluster, ready = _connect(config, home, account, arguments)
        if ready.arguments != arguments:
            connection.close()
            raise DataDirectoryBusy(
                f"{home} is already running with other settings: {' '.join(ready.arguments)}"
            )
        return cls(connection, cluster, config.port)

    @property
    def url(self) -> str:
        """The URL of the server on its unix socket."""
        return embedded_url(self._cluster.home, self._port)

    @property
    def tcp_url(self) -> str:
        """The URL of the server on the loopback interface, with its password."""
        if self._port is None:
            raise EmbeddedServerFailure("this server has no TCP port; set one in its config")
        password = self._cluster.password_path.read_text()
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self._port}/{DATABASE}"

    @property
    def data_directory(self) -> Path:
        """The Postgres data directory."""
        return self._cluster.data

    def stop(self) -> None:
        """Release the server. If this was the last holder, wait until the server has ended."""
        with contextlib.suppress(OSError), self._connection:
            self._connection.shutdown(socket.SHUT_WR)
            while self._connection.recv(4096):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def embedded_url(home: Path | None = None, port: int | None = None) -> str:
    """The URL of the server of a home on its unix socket, whether it runs or not."""
    home = (home or data_home(server_account(None))).expanduser().resolve()
    directory = quote(str(runtime_directory(home) / SOCKET_DIRECTORY), safe="")
    return f"postgresql://{SUPERUSER}@/{DATABASE}?host={directory}&port={port or UNIX_PORT}"


def server_arguments(config: EmbeddedConfig) -> list[str]:
    """The settings as command line options, so that they change with the program."""
    settings = SETTINGS | config.settings
    settings["listen_addresses"] = "127.0.0.1" if config.port else ""
    settings["port"] = str(config.port or UNIX_PORT)
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _connect(
    config: EmbeddedConfig, home: Path, account: Account, arguments: list[str]
) -> tuple[socket.socket, Cluster, Ready]:
    _refuse_foreign(home)
    binaries = find_binaries(_written_by(home))
    directory = str(binaries.directory)
    plan = Plan(str(home), directory, account, arguments, config.start_timeout_ms)
    cluster = plan.cluster()
    for _ in range(max(1, int(config.start_timeout_ms / 1000 / RETRY_S))):
        connection = _join(cluster) or _start_supervisor(plan, cluster)
        connection.settimeout(config.start_timeout_ms / 1000)
        match _reply(connection):
            case Ready() as ready:
                connection.settimeout(None)
                return connection, cluster, ready
            case Failed(error, reason):
                connection.close()
                raise getattr(errors, error, EmbeddedServerFailure)(reason)
            case Taken() | None:
                # Its supervisor is just starting or just ending.
                with connection:
                    connection.settimeout(RETRY_S)
                    with contextlib.suppress(OSError):
                        connection.recv(1)
    raise DataDirectoryBusy(f"{home} is in use by a process that does not respond")


def _refuse_foreign(home: Path) -> None:
    try:
        if (home / "PG_VERSION").exists():
            raise DataDirectoryBusy(
                f"{home} is itself a Postgres data directory; choose the directory to create one in"
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
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(cluster.supervisor_socket))
    except OSError:
        connection.close()
        return None
    return connection


def _start_supervisor(plan: Plan, cluster: Cluster) -> socket.socket:
    """Start a supervisor in its own session, so that Ctrl-C reaches only this program."""
    ours, theirs = socket.socketpair()
    with theirs, cluster.open_log() as log:
        program = [sys.executable, "-m", "wheelsched.embedded.supervisor"]
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


def _reply(connection: socket.socket) -> Reply | None:
    """The first reply on a connection; None if it ends without one."""
    received = b""
    try:
        while not received.endswith(b"\n"):
            part = connection.recv(4096)
            if not part:
                return None
            received += part
    except TimeoutError as error:
        connection.close()
        raise EmbeddedServerFailure("the embedded Postgres did not start in time") from error
    except OSError:
        return None
    reply: Reply = msgspec.json.decode(received, type=Reply)
    return reply
