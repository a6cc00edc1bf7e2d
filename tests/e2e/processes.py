"""Who is whose child, as the kernel says."""

import time
from collections.abc import Callable, Collection
from pathlib import Path

from tests.stack import GENEROUS_S


def eventually(condition: Callable[[], bool]) -> None:
    """Returns when it holds."""
    deadline = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def parents() -> dict[int, int]:
    """Every process that lives, and its parent."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(path.parent.name)] = int(fields[1])
    return found


def children_of(process_id: int) -> list[int]:
    return [pid for pid, parent in parents().items() if parent == process_id]


def descendants_of(process_ids: Collection[int]) -> set[int]:
    """Children, and theirs."""
    by_parent = parents()
    found: set[int] = set()
    while more := {pid for pid, parent in by_parent.items() if parent in {*process_ids, *found}}:
        if more <= found:
            break
        found |= more
    return found


def is_over(process_ids: Collection[int]) -> bool:
    return not set(process_ids) & parents().keys()
