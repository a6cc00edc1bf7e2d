"""Ends whatever runs in a directory when the test that started it is gone: `keeper.py DIRECTORY`.

Patroni starts Postgres in a session of its own, so that it outlives Patroni and the test. The
kernel closes the keeper's standard input with its parent, whatever ended that.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path


def kill_all(directory: Path) -> None:
    """Kills, until there is none, the processes whose working directory is in there."""
    while pids := inside(directory):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def inside(directory: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            place = (process / "cwd").readlink()
            is_there = directory in (place, *place.parents)
            if is_there and "\nState:\tZ" not in (process / "status").read_text():
                found.append(int(process.name))
    return found


if __name__ == "__main__":
    os.setsid()  # a Ctrl-C is for the test, which tells it by its end
    sys.stdin.read()
    kill_all(Path(sys.argv[1]))
