"""Chooses the system account that runs the embedded Postgres, and its directories.

Invariant: the mode and the owner of an existing directory are never changed.
"""

import os
import pwd
import tempfile
from pathlib import Path
from typing import TypedDict

from msgspec import Struct

from wheelsched.errors import EmbeddedServerFailure

CANDIDATES = ("postgres", "nobody")
SYSTEM_DATA = Path("/var/lib")
SYSTEM_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - directories are made in them


class Credentials(TypedDict, total=False):
    """The arguments of `subprocess` that run a program as another account."""

    user: int
    group: int
    extra_groups: list[int]


class Account(Struct, frozen=True):
    """A system account. With `drops`, the program is root and must drop its privileges to it."""

    name: str
    uid: int
    gid: int
    drops: bool

    def credentials(self) -> Credentials:
        """The arguments that run a program as this account."""
        if not self.drops:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def reaches(self, path: Path, mode: int) -> bool:
        """Whether the account has this access to the path. It asks the kernel, which knows ACLs.

        It forks, so only a process without other threads may call it.
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

    def may_enter(self, directory: Path) -> bool:
        """Whether the modes of a directory and its parents let the account enter.

        It is used to choose a directory; `reaches` then checks the chosen one.
        """
        found = directory.resolve()
        return all(self._has_right(path, os.X_OK) for path in (found, *found.parents))

    def _has_right(self, path: Path, right: int) -> bool:
        try:
            status = path.stat()
        except OSError:
            return False
        if status.st_uid == self.uid:
            return bool(status.st_mode >> 6 & right)
        if status.st_gid == self.gid:
            return bool(status.st_mode >> 3 & right)
        return bool(status.st_mode & right)

    def own(self, path: Path) -> None:
        """Give the account a file that this program has just created."""
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
        f"Postgres cannot run as root, and no account {name or ' or '.join(CANDIDATES)} exists; "
        "choose an existing account that is not root"
    )


def data_home(account: Account) -> Path:
    """The default directory for data.

    The account that root drops to cannot enter root's home. So root uses the system's directory,
    or, if that is closed too, the home of the account.
    """
    if not account.drops:
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "wheelsched"
    usual = SYSTEM_DATA / "wheelsched"
    own_home = Path(pwd.getpwuid(account.uid).pw_dir)
    if usual.exists() or account.may_enter(SYSTEM_DATA) or not account.may_enter(own_home):
        return usual
    return own_home / "wheelsched"


def make_throwaway_home(account: Account, prefix: str) -> Path:
    """Create an empty directory for temporary data that the account can reach.

    The temporary directory of root may be closed to others, e.g. with pam_tmpdir.
    """
    places = (Path(tempfile.gettempdir()), *SYSTEM_TEMPORARY)
    place = next((place for place in places if account.may_enter(place)), places[0])
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    made.chmod(0o711)
    return made
