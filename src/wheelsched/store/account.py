"""Before every stage: which system account runs the embedded Postgres, and what it can reach.

Invariant: no mode and no owner of a directory that was there before is ever changed.
"""

import os
import pwd
from pathlib import Path
from typing import TypedDict

from msgspec import Struct

from wheelsched.errors import EmbeddedServerFailure

CANDIDATES = ("postgres", "nobody")


class Credentials(TypedDict, total=False):
    """The arguments of `subprocess` that run a program as somebody else."""

    user: int
    group: int
    extra_groups: list[int]


class Account(Struct, frozen=True):
    """A system account. `drops` says that the program is root and must become it first."""

    name: str
    uid: int
    gid: int
    drops: bool

    def credentials(self) -> Credentials:
        """What makes a program run as this account."""
        if not self.drops:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def reaches(self, path: Path, mode: int) -> bool:
        """Whether the account may use the path so; asked of the kernel, which knows ACLs too.

        Forks, so only a process without other threads may call it.
        """
        if not self.drops:
            return os.access(path, mode)
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(self.gid)
            os.setuid(self.uid)
            os._exit(0 if os.access(path, mode) else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def own(self, path: Path) -> None:
        """Gives the account what this program has just made for it."""
        if self.drops:
            os.chown(path, self.uid, self.gid)


def server_account(name: str | None) -> Account:
    """The account to run the server as: our own, unless we are root."""
    if os.geteuid() != 0:
        return Account(str(os.geteuid()), os.geteuid(), os.getegid(), drops=False)
    for candidate in (name,) if name else CANDIDATES:
        try:
            entry = pwd.getpwnam(candidate)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, drops=True)
    raise EmbeddedServerFailure(
        f"Postgres refuses to run as root, and there is no account {name or CANDIDATES} "
        "to run it as: name one that is not root"
    )


def data_home() -> Path:
    """Where the data lives by default.

    The home of root is closed to the account that root drops to, so root has the system's.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/wheelsched")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "wheelsched"
