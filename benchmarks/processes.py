"""What processes have used, as /proc tells it."""

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What a process has used, and holds."""

    cpu_s: float
    peak_mib: float
    resident_mib: float


def usage_of(pid: int) -> Usage:
    """Of one process, without its children."""
    status = Path(f"/proc/{pid}/status").read_text()
    sizes = {
        line.split(":")[0]: int(line.split()[1])
        for line in status.splitlines()
        if line.startswith(("VmHWM", "VmRSS"))
    }
    user, system, *_ = _ticks(_fields(pid))
    return Usage((user + system) / TICKS, sizes["VmHWM"] / 1_024, sizes["VmRSS"] / 1_024)


def child_of(parent: int) -> int:
    """The only child of a process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _fields(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
            if int(fields[1]) == parent:
                return int(entry.name)
    raise ProcessLookupError(parent)


def tree_cpu_s(root: int) -> float:
    """CPU time of a process and all below it, those that have ended and were waited for too."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _fields(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
            children[int(fields[1])].append(int(entry.name))
            used[int(entry.name)] = sum(_ticks(fields))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0)
        waiting += children[pid]
    return total / TICKS


def _fields(pid: int) -> list[str]:
    """The fields of a process after its name, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()


def _ticks(fields: list[str]) -> list[int]:
    """Its own user and system time, and that of the children it has waited for."""
    return [int(field) for field in fields[11:15]]
