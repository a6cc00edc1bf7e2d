"""`wheelsched shard` that differs in one respect: `python variant_shard.py VARIANT shard …`.

- `unwatched`: it does not watch the connections of the others.
- `hungry`: on SIGUSR2 it takes memory up to its limit, and is killed as the kernel would kill it.
- `lying`: its parent certifies its death while it lives.
"""

import asyncio
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from wheelsched.cli import main
from wheelsched.daemon import parent
from wheelsched.shard.ownership.takeover import Takeover

LIMIT_BYTES = 512 << 20
PAGE_BYTES = 4096
LIE_AFTER_S = 8.0


async def watch_nothing(_: Takeover) -> None:
    await asyncio.Event().wait()


def starve() -> NoReturn:
    """Takes memory, and writes to each page of it, until the limit."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, used + LIMIT_BYTES))
    taken: list[bytearray] = []
    try:
        while True:
            taken.append(bytearray(b"\1") * (1 << 20))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(len(taken))


def be_hungry() -> None:
    signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=starve).start())


class KnownRecord(parent.ShardRecord):
    """The record of the only child, for a parent that cannot wait."""

    latest: "KnownRecord"

    def __init__(self) -> None:
        super().__init__()
        KnownRecord.latest = self


def lie(child: int) -> int:
    from wheelsched.daemon.certificates import certify_record

    time.sleep(LIE_AFTER_S)
    certify_record(KnownRecord.latest)
    return wait_for(child)


wait_for = parent.wait_for

if __name__ == "__main__":
    match sys.argv.pop(1):
        case "unwatched":
            with patch.object(Takeover, "run", watch_nothing):
                main()
        case "hungry":
            be_hungry()
            main()
        case "lying":
            with (
                patch.object(parent, "ShardRecord", KnownRecord),
                patch.object(parent, "wait_for", lie),
            ):
                main()
