"""Shards that differ in one respect, to see what one way to know of a death does alone."""

import os
import signal
import sys
from pathlib import Path

from tests.faults.processes import Shard

PROGRAM = str(Path(__file__).with_name("variant_shard.py"))


class CertifiedShard(Shard):
    """It does not watch connections: only parents tell that a shard has died."""

    command = (sys.executable, PROGRAM, "unwatched", "shard")


class UnwatchedShard(CertifiedShard):
    """Nobody tells: a lease has to expire."""

    options = ("--no-parent",)


class HungryShard(Shard):
    """It can be told to take all the memory that it may have."""

    command = (sys.executable, PROGRAM, "hungry", "shard")

    async def starve(self) -> None:
        """Returns when it has ended, and its parent."""
        pids = self.pids
        for pid in self.shard_pids:
            os.kill(pid, signal.SIGUSR2)
        await self.until_gone(pids)


class LyingShard(Shard):
    """Its parent certifies its death while it lives."""

    command = (sys.executable, PROGRAM, "lying", "shard")
