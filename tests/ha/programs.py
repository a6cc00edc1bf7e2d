"""The programs of a cluster: etcd, Patroni and Postgres. What is missing is installed in build/ha.

Invariant: nothing outside of that directory is changed, and root is not needed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from wheelsched.embedded.account import Account, server_account
from wheelsched.embedded.binaries import find_binaries

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "ha"
INSTALL_S = 300


class ProgramMissing(Exception):
    """a program of the cluster is not there, and could not be installed"""


class Programs(Struct, frozen=True):
    """Where they are, and the account that runs them: Postgres refuses to run as root."""

    etcd: Path
    patroni: tuple[str, ...]
    postgres: Path  # the `bin` directory
    account: Account

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs a program as the account.

        It may be in a directory of root's, e.g. the interpreter: the right to enter goes with it.
        """
        if not self.account.drops:
            return list(arguments)
        rights = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
        ids = (f"--reuid={self.account.uid}", f"--regid={self.account.gid}", "--clear-groups")
        return ["setpriv", *ids, *rights, "--pdeathsig=KILL", "--", *arguments]


def find_programs() -> Programs:
    """Finds them, and installs what is missing; one process at a time."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Programs(
            etcd=_find_etcd(),
            patroni=(str(_find_patroni()), "-m", "patroni"),
            postgres=find_binaries().directory,
            account=server_account(None),
        )


def _find_etcd() -> Path:
    if found := shutil.which("etcd"):
        return Path(found)
    program = PLACE / "etcd" / "usr" / "bin" / "etcd"
    if not program.exists():
        _install("etcd", f"cd {PLACE} && apt-get download etcd-server && dpkg -x *.deb etcd")
    return program


def _find_patroni() -> Path:
    """The interpreter of its environment: what it needs is not to be among what we need."""
    home = PLACE / "venv"
    interpreter, done = home / "bin" / "python", home / ".installed"
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = "\n".join(groups["ha"])
    if not done.exists() or done.read_text() != wanted:
        pip = f"{sys.executable} -m pip --quiet --python {interpreter}"
        environment = f"{sys.executable} -m venv --clear --without-pip {home}"
        _install("Patroni", f"cd {ROOT} && {environment} && {pip} install --group ha")
        done.write_text(wanted)
    return interpreter


def _install(name: str, command: str) -> None:
    done = subprocess.run(
        ["sh", "-ec", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode:
        raise ProgramMissing(f"{name} is missing, and this failed: {command}\n{done.stdout}")


def run_as(programs: Programs, arguments: Sequence[str], **options: str) -> str:
    """Runs a program to its end as the account; gives its output."""
    done = subprocess.run(
        programs.command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
        env=os.environ | options,
    )
    assert not done.returncode, f"{arguments}: {done.stdout}"
    return done.stdout
