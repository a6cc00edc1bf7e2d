"""The world of a failover: shards and an API whose database URL names every node of a cluster.

Invariant: what the database forgot is read from where it still is, before that is overwritten; the
checker excuses nothing without an instant from which on and until which it was forgotten.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import cast

import asyncpg
from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import History, Ownership, RunRow
from tests.faults.client import now_us
from tests.faults.judge import Observation
from tests.faults.logbook import OWNERSHIP, read_ownerships, read_runs
from tests.faults.server import Server, fill_database
from tests.faults.world import World
from tests.ha.cluster import Cluster
from tests.ha.node import Node
from tests.stack import PROGRAM, clean_environment
from tests.waiting import WAIT_LIMIT_S

from wheelsched.embedded.supervisor import die_with_parent

DATABASE = "experiment"
POLL_S = 0.05
WENT_BACK = "database.went_back"
REPLAYED = "SELECT pg_last_xact_replay_timestamp()"


class ClusterServer(Server):
    """The primary of a cluster, as the server of a world. The experiment says which node it is."""

    def __init__(self, cluster: Cluster, primary: Node) -> None:
        self.cluster = cluster
        self.primary = primary

    @property
    def home(self) -> Path:
        return self.cluster.home

    def url(self, database: str = "postgres") -> str:
        return self.primary.url(database)

    async def new_database(self) -> str:
        connection = await self.primary.connect()
        await connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
        await connection.close()
        await fill_database(self.url(DATABASE))
        return DATABASE

    async def drop_database(self, name: str) -> None:
        """It ends with its cluster."""


class Lost(Struct, frozen=True):
    """What a state of the database knew that was lost afterwards."""

    at_us: int
    ownerships: list[Ownership]
    runs: list[RunRow]


class HaWorld(World):
    """`first` is the node that stands first in the URL."""

    def __init__(self, server: Server, database: str, directory: Path, random: Random) -> None:
        super().__init__(server, database, directory, random)
        self.nodes = cast("ClusterServer", server)
        self.cluster = self.nodes.cluster
        self.first = self.nodes.primary.name
        self._lost: list[Lost] = []

    async def _line(self, name: str) -> str:
        return self._url_for(name)

    def _url_for(self, name: str) -> str:
        return self.cluster.url(self.database, self.first)

    @asynccontextmanager
    async def failover(self, victim: Node, *, is_planned: bool = False) -> AsyncIterator[None]:
        """In the block the primary is made to fail; afterwards another one is there.

        What was committed after the last transaction that the new one has seen is forgotten. With
        synchronous replication nothing may be, nor when it was planned: then the old primary ends
        only after it has sent everything.
        """
        others = [node for node in self.cluster.nodes.values() if node is not victim]
        from_us = now_us()
        yield
        failed_us = now_us()
        promoted, promoted_us = await self.cluster.promoted(others)
        self.nodes.primary = promoted
        self.logbook.note("store", from_us)
        self.logbook.returns_us.append(promoted_us)
        self.remarks.append(f"promoted after {(promoted_us - from_us) / 1_000_000:.1f} s")
        if self.cluster.replication == "asynchronous" and not is_planned:
            self.lose(await self.replayed_us(promoted), failed_us)

    async def replayed_us(self, promoted: Node) -> int:
        """When the last transaction was committed that a new primary knows."""
        replayed = cast("datetime", await promoted.ask(REPLAYED))
        return int(replayed.timestamp() * 1_000_000)

    def lose(self, from_us: int, until_us: int) -> None:
        """What was committed between two instants is forgotten."""
        self.logbook.note("loss", from_us)
        self.logbook.faults[-1] = replace(self.logbook.faults[-1], until_us=until_us)
        self.announced.add(WENT_BACK)
        self.remarks.append(f"{max(until_us - from_us, 0) / 1_000_000:.1f} s lost")

    def require_noticed(self, *, besides: str | None = None) -> None:
        """Every shard but one has said that the database went back."""
        for name, shard in self.shards.items():
            has_noticed = bool(shard.events(WENT_BACK))
            self.require(has_noticed or name == besides, f"{name} has not logged {WENT_BACK}")

    async def require_told(self) -> None:
        """`wheelsched doctor` says that the database went back."""
        process = await asyncio.create_subprocess_exec(
            *(*PROGRAM, "doctor", "--database-url", self._url_for("doctor")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
        )
        async with asyncio.timeout(WAIT_LIMIT_S):
            said, _ = await process.communicate()
        words = " ".join(said.decode().split())  # it wraps its lines
        self.require("the database went back to an older state" in words, f"doctor: {words}")

    async def read_lost(self, url: str) -> None:
        """What a state knew that is lost by now."""
        connection = await asyncpg.connect(url)
        try:
            self._lost.append(
                Lost(
                    now_us(),
                    list(read_ownerships(await connection.fetch(OWNERSHIP))),
                    [run async for run in read_runs(connection, "wheelsched.runs")],
                )
            )
        finally:
            await connection.close()

    async def read_lost_of(self, node: Node) -> None:
        """The same, of a killed node: its Postgres is started alone, and stopped again."""
        async with alone(node) as url:
            await self.read_lost(url)

    async def heal(self) -> int:
        for node in self.cluster.nodes.values():
            node.wake()
            for tunnel in node.tunnels.values():
                tunnel.let_go()
        return await super().heal()

    async def dump(self, healed_us: int) -> Observation:
        seen = await super().dump(healed_us)
        return replace(seen, history=with_lost(seen.history, self._lost))


def with_lost(history: History, states: Iterable[Lost]) -> History:
    """A history that knows also what the database has forgotten."""
    there = {(run.job, run.due_us) for run in history.runs}
    ownerships = {_identity(one): one for one in history.ownerships}
    forgotten: list[RunRow] = []
    for lost in states:
        forgotten += [run for run in lost.runs if (run.job, run.due_us) not in there]
        for ownership in lost.ownerships:
            known = ownerships.get(_identity(ownership))
            ownerships[_identity(ownership)] = _earlier(ownership, known, lost.at_us)
    return replace(history, forgotten=tuple(forgotten), ownerships=tuple(ownerships.values()))


def _identity(ownership: Ownership) -> tuple[int, int, str, int]:
    return (ownership.partition, ownership.epoch, ownership.shard, ownership.from_us)


def _earlier(lost: Ownership, known: Ownership | None, lost_us: int) -> Ownership:
    """The ownership with its first end: a shard that gave up a partition does not get it back."""
    if known is None:
        return lost if lost.until_us else replace(lost, until_us=lost_us, ended="left")
    if lost.until_us is None:
        return known
    return lost if known.until_us is None else min(lost, known, key=lambda one: one.until_us or 0)


@asynccontextmanager
async def alone(node: Node) -> AsyncIterator[str]:
    """The Postgres of a node without its Patroni; gives the address of the database."""
    programs, place = node.programs, node.directory
    settings = {"listen_addresses": "", "synchronous_standby_names": ""}
    with (place / "alone.log").open("ab") as log:
        process = subprocess.Popen(
            programs.command(
                *(str(programs.postgres / "postgres"), "-D", str(node.data), "-k", str(place)),
                *("-p", str(node.postgres_port)),
                *(f"--{name}={value}" for name, value in settings.items()),
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place,
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - no threads of ours
        )
    try:
        async with asyncio.timeout(WAIT_LIMIT_S):
            while await node.ask("SELECT 1") != 1:
                assert process.poll() is None, (place / "alone.log").read_text()[-2000:]
                await asyncio.sleep(POLL_S)
        yield node.url(DATABASE)
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(process.wait, WAIT_LIMIT_S)
