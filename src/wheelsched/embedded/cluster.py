"""The files of one embedded Postgres.

Invariant: `data` is always complete. It is created under another name and then renamed.

    home/                 the directory that the user chooses
      data/               the Postgres data directory, closed to all but the server's account
      socket/             its unix socket, likewise (elsewhere if this path is too long)
      supervisor.lock     held by the supervisor while it runs
      supervisor.socket   where further programs connect (elsewhere, as above)
      password            of the superuser, for TCP
      server.log
"""

import contextlib
import hashlib
import os
import secrets
import select
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from wheelsched.embedded.account import Account
from wheelsched.errors import DataDirectoryBusy, DataDirectoryUnreachable, EmbeddedServerFailure

SUPERUSER = "wheelsched"
DATABASE = "postgres"
SOCKET_DIRECTORY = "socket"
HOME_LINK = "home"  # in a socket directory elsewhere: where the home is
LONGEST_SOCKET_PATH = 103  # bytes: macOS; Linux allows four more
LONGEST_SOCKET_NAME = "socket/.s.PGSQL.65535.lock"
LARGEST_LOG_BYTES = 16 << 20
LEFTOVER_POLL_S = 0.02


class Cluster:
    """The directories of one server.

    Its methods run in the supervisor, under its lock. Every holder computes the same paths.
    """

    def __init__(self, home: Path, binaries: Path, account: Account) -> None:
        self.home = home
        self.data = home / "data"
        self.lock_path = home / "supervisor.lock"
        self.password_path = home / "password"
        self.log_path = home / "server.log"
        runtime = runtime_directory(home)
        self.supervisor_socket = runtime / "supervisor.socket"
        self.socket_directory = runtime / SOCKET_DIRECTORY
        self._binaries = binaries
        self._account = account

    def prepare(self) -> None:
        """Create what is missing. Raises if the server's account cannot reach the home."""
        self._refuse_unreachable()
        self._make_binaries_reachable()
        if not self.socket_directory.is_dir():
            self.socket_directory.mkdir(mode=0o700)
            self._account.own(self.socket_directory)
        if not self.data.exists():
            self._initialise()

    def clear_runtime(self) -> None:
        """Remove the directory of the sockets, unless it is the home."""
        runtime = self.supervisor_socket.parent
        if runtime != self.home:
            shutil.rmtree(runtime, ignore_errors=True)

    def command(self, arguments: list[str]) -> list[str]:
        """The command line of the server."""
        program = str(self._binaries / "postgres")
        return [program, "-D", str(self.data), "-k", str(self.socket_directory), *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of the server. The caller's `PG*` and locale variables would affect it.

        After a reboot the pid in the server's lock file may belong to any program, and Postgres
        would refuse to start. We know that it is not a server on our data. The variable in which
        `pg_ctl` passes its own pid makes Postgres ignore it.
        """
        found = self._pid_file()
        foreign = {"PG_GRANDPARENT_PID": found[0]} if found and not self._leftover_pid() else {}
        return {"PATH": f"{self._binaries}:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"} | foreign

    def is_ready(self, pid: int) -> bool:
        """Whether the server with this pid is ready, by the pid file that `pg_ctl` reads too."""
        lines = self._pid_file()
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def open_log(self) -> IO[bytes]:
        """Open the log to append to it, and rotate it if it is long. Only its owner may read it."""
        with contextlib.suppress(FileNotFoundError):
            if self.log_path.stat().st_size > LARGEST_LOG_BYTES:
                self.log_path.rename(self.log_path.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return os.fdopen(os.open(self.log_path, flags, mode=0o600), "ab")

    def log_tail(self) -> str:
        """The last lines of the log, for an error message."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 2048))
            return " | ".join(log.read().decode(errors="replace").splitlines()[-8:])
        return "no log"

    def end_leftover_server(self, signals: Iterable[tuple[signal.Signals, int]]) -> None:
        """End a server whose supervisor was killed, if it is still running."""
        pid = self._leftover_pid()
        for number, timeout_s in signals if pid else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            for _ in range(int(timeout_s / LEFTOVER_POLL_S)):
                if self._leftover_pid() != pid:
                    return
                select.select((), (), (), LEFTOVER_POLL_S)
        if pid:
            raise DataDirectoryBusy(f"{self.data} is in use by process {pid}, which does not stop")

    def _leftover_pid(self) -> int:
        """The pid of a server on our data that is not our child, or 0.

        The pid file alone proves nothing: after a reboot its pid may belong to any process.
        """
        lines = self._pid_file()
        if not lines or not lines[0].isdigit():
            return 0
        pid = int(lines[0])
        if Path("/proc/self").exists():
            with contextlib.suppress(OSError):
                return pid if Path(f"/proc/{pid}/cwd").readlink() == self.data else 0
            return 0
        found = subprocess.run(  # noqa: S603 - a pid
            ["/bin/ps", "-o", "command=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return pid if str(self.data) in found.stdout else 0

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _refuse_unreachable(self) -> None:
        for directory in (*reversed(self.home.parents), self.home):
            if not self._account.reaches(directory, os.X_OK):
                raise DataDirectoryUnreachable(
                    f"the account '{self._account.name}' that runs Postgres cannot enter "
                    f"{directory}; choose a data directory that it can reach, e.g. under "
                    "/var/lib, or give it access to this one"
                )

    def _make_binaries_reachable(self) -> None:
        """Copy the programs next to the data if the account cannot reach them.

        This is the case for e.g. a virtual environment under /root.
        """
        if self._account.reaches(self._binaries / "postgres", os.X_OK):
            return
        installation = self._binaries.parent
        package = installation.parent
        digest = hashlib.sha256(os.fsencode(installation)).hexdigest()[:12]
        copy = self.home / f"postgres-{digest}"
        if not copy.exists():
            with tempfile.TemporaryDirectory(dir=self.home, prefix="copying-") as scratch:
                whole = Path(scratch) / "whole"
                inside = whole / package.name / installation.name
                shutil.copytree(installation, inside, symlinks=True)
                # A wheel keeps the libraries of its programs beside the package, and the
                # programs find them by the relative path.
                libraries = package.with_name(f"{package.name}.libs")
                if libraries.is_dir():
                    shutil.copytree(libraries, whole / libraries.name, symlinks=True)
                whole.rename(copy)
        self._binaries = copy / package.name / installation.name / self._binaries.name

    def _initialise(self) -> None:
        scratch = self.home / "data.initialising"
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir(mode=0o700)
        self._account.own(scratch)
        self.password_path.unlink(missing_ok=True)
        self.password_path.touch(mode=0o600)
        self.password_path.write_text(secrets.token_urlsafe(24))
        self._account.own(self.password_path)
        done = subprocess.run(  # noqa: S603 - our own paths
            [
                *(str(self._binaries / "initdb"), "-D", str(scratch), "-U", SUPERUSER),
                *("--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"),
                *("--auth-local=trust", "--auth-host=scram-sha-256"),
                f"--pwfile={self.password_path}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            check=False,
            **self._account.credentials(),
        )
        if done.returncode:
            output = " | ".join(done.stdout.decode(errors="replace").splitlines()[-5:])
            raise EmbeddedServerFailure(f"initdb failed with code {done.returncode}: {output}")
        scratch.rename(self.data)


def make_home(home: Path) -> None:
    """Create the home and its missing parents. The server's account can enter what root creates."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    missing = [path for path in (home, *home.parents) if not path.exists()]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            path.chmod(mode)


def runtime_directory(home: Path) -> Path:
    """The directory of the sockets: the home, or a short path if theirs would be too long."""
    if len(os.fsencode(home / LONGEST_SOCKET_NAME)) <= LONGEST_SOCKET_PATH:
        return home
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    short = Path("/tmp") / f"wheelsched-{os.geteuid()}-{digest}"  # noqa: S108 - verified below
    with contextlib.suppress(FileExistsError):
        short.mkdir(mode=0o711)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise DataDirectoryUnreachable(
            f"{short}, the socket directory of {home}, belongs to another account"
        )
    with contextlib.suppress(FileExistsError):
        (short / HOME_LINK).symlink_to(home)
    return short


def home_of(socket_directory: Path) -> Path | None:
    """The home of the server with this socket directory; None if there is none."""
    runtime = socket_directory.parent
    for home in (runtime, runtime / HOME_LINK):
        if (home / "data").is_dir():
            return home.resolve()
    return None
