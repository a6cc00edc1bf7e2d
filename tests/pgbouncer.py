"""A real pgbouncer for the tests: the installed one, or Debian's package, unpacked into `build/`.

`WHEELSCHED_PGBOUNCER` names another program, e.g. of another version.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.ports import HOST, reserved_port
from tests.postgres import reachable_directory
from tests.replication import socket_of
from tests.waiting import until

from wheelsched.embedded.account import server_account

UNPACKED = Path("build/pgbouncer").absolute()
PROGRAM = "usr/sbin/pgbouncer"
INSTALL = "install pgbouncer: apt-get install pgbouncer"
WAIT_LIMIT_S = 60


class Pgbouncer:
    """A pooler before the server of a database."""

    def __init__(self, home: Path, port: int, database_url: str) -> None:
        self.home = home
        self.port = port
        self._database_url = database_url
        self.server_port: int | None = None  # of a proxy before the server
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The database, through the pooler."""
        name = urlsplit(self._database_url).path
        return f"postgresql://wheelsched:unused@{HOST}:{self.port}{name}?sslmode=disable"

    @property
    def log(self) -> Path:
        return self.home / "log"

    def start(self) -> None:
        account = server_account(None)
        identity = ["-u", account.name] if account.drops else []
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_program(), *identity, str(self.home / "pgbouncer.ini")],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        _await(self._process, self.port, self.log)

    def configure(self, mode: str, **settings: object) -> None:
        path = Path(socket_of(self._database_url))
        server = f"host={path.parent} port={path.suffix[1:]}"
        if self.server_port is not None:
            server = f"host={HOST} port={self.server_port}"
        options = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": mode,
        } | settings
        (self.home / "pgbouncer.ini").write_text(
            f"[databases]\n* = {server} user=wheelsched\n"
            "[pgbouncer]\n" + "".join(f"{key} = {value}\n" for key, value in options.items())
        )

    async def reload(self, mode: str) -> None:
        """Changes its mode while clients are connected."""
        assert self._process
        self.configure(mode)
        self._process.send_signal(signal.SIGHUP)
        await until(self._has_reloaded)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_LIMIT_S)

    async def _has_reloaded(self) -> bool:
        return "got SIGHUP" in self.log.read_text()


@contextmanager
def running_pgbouncer(
    database_url: str, mode: str, server_port: int | None = None, **settings: object
) -> Iterator[Pgbouncer]:
    """A pgbouncer in that mode, until the end of the block."""
    home = reachable_directory()
    with reserved_port() as port:
        pooler = Pgbouncer(home, port, database_url)
        pooler.server_port = server_port
        pooler.configure(mode, **settings)
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.stop()
            shutil.rmtree(home)


def _await(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Returns when it accepts connections."""
    while process.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex((HOST, port)) == 0:
                return
    pytest.fail(f"pgbouncer ended: {log.read_text()}")


def _program() -> list[str]:
    """The command that runs pgbouncer."""
    if named := os.environ.get("WHEELSCHED_PGBOUNCER"):
        return named.split()
    if installed := shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"):
        return [installed]
    if not (UNPACKED / PROGRAM).exists():
        _unpack()
    libraries = {str(path.parent) for path in UNPACKED.glob("usr/lib/*/*.so*")}
    return ["/usr/bin/env", f"LD_LIBRARY_PATH={':'.join(libraries)}", str(UNPACKED / PROGRAM)]


def _unpack() -> None:
    """Downloads and unpacks the package and its libraries, without root."""
    if shutil.which("apt-get") is None:
        pytest.fail(INSTALL)
    asked = subprocess.run(
        ["apt-cache", "depends", "--important", "pgbouncer"],
        capture_output=True,
        text=True,
        check=False,
    )
    libraries = re.findall(r"Depends: (lib(?!c6)\S+)", asked.stdout)
    scratch = UNPACKED.with_suffix(f".{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        done = subprocess.run(
            ["apt-get", "download", "pgbouncer", *libraries],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{INSTALL} ({done.stderr.strip()})")
        for package in scratch.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, scratch], check=True)
            package.unlink()
        if not UNPACKED.exists():
            scratch.rename(UNPACKED)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
