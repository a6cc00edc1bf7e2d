"""Three Postgres under Patroni, and the etcd in which they agree on who is the primary.

Invariant: every process of a cluster ends with it, and with the test that started it.
"""

import asyncio
import base64
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import aiohttp
from tests.faults.client import now_us
from tests.ha import keeper
from tests.ha.keeper import kill_all
from tests.ha.node import PASSWORD, SUPERUSER, Node, fetch_json
from tests.ha.programs import Programs, find_programs
from tests.ha.tunnel import HOST
from tests.ports import reserved_port
from tests.postgres import reachable_directory
from tests.waiting import WAIT_LIMIT_S

from wheelsched.embedded.supervisor import die_with_parent

Replication = Literal["synchronous", "asynchronous"]
NAMES = ("a", "b", "c")
POLL_S = 0.02
TTL_S = 20  # the least that Patroni takes
# How far the standbys are behind what is written.
BEHIND = """
SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), -1)
FROM pg_stat_replication
"""


class Cluster:
    """`nodes` by their names. The first of them begins as the primary."""

    def __init__(self, home: Path, programs: Programs, replication: Replication) -> None:
        self.home = home
        self.replication = replication
        self._programs = programs
        self._etcd_port = 0
        self.nodes = {name: Node(name, home, programs) for name in NAMES}

    async def open(self, stack: AsyncExitStack) -> None:
        """Starts everything, and waits until both standbys follow the primary."""
        self._etcd_port = await self._start_etcd(stack)
        for node in self.nodes.values():
            await node.open(stack, self._etcd_port, self._agreed())
        first, *others = self.nodes.values()
        await first.start()
        await self._until(first.is_primary)
        for node in others:
            await node.start()
        await self.until_whole()

    def url(self, database: str, first: str = NAMES[0]) -> str:
        """All hosts, for clients; the named one is the first of them."""
        names = sorted(self.nodes, key=lambda name: (name != first, name))
        hosts = ",".join(self.nodes[name].address for name in names)
        return f"postgresql://{SUPERUSER}:{PASSWORD}@{hosts}/{database}?sslmode=disable"

    async def primary(self, among: Sequence[Node] = ()) -> Node | None:
        """Who says that it is the primary; None if nobody does."""
        nodes = among or tuple(self.nodes.values())
        answers = await asyncio.gather(*(node.is_primary() for node in nodes))
        return next((node for node, is_so in zip(nodes, answers, strict=True) if is_so), None)

    async def the_primary(self) -> Node:
        """Waits until there is one."""
        return (await self.promoted(tuple(self.nodes.values())))[0]

    async def standbys(self) -> list[Node]:
        primary = await self.the_primary()
        return [node for node in self.nodes.values() if node is not primary]

    async def expire(self) -> None:
        """The lock of the primary in etcd ends at once, not when its time is over."""
        key = base64.b64encode(b"/service/wheelsched/leader").decode()
        url = f"http://{HOST}:{self._etcd_port}/v3/kv/deleterange"
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(url, json={"key": key}),
        ):
            pass

    async def promoted(self, among: Sequence[Node]) -> tuple[Node, int]:
        """Waits until one of some nodes is the primary; gives it, and when that was."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while (found := await self.primary(among)) is None:
                await asyncio.sleep(POLL_S)
        return found, now_us()

    async def until_whole(self) -> None:
        """Waits until Patroni says that all standbys follow, one of them in step if it has to."""
        in_step = "sync_standby" if self.replication == "synchronous" else "replica"
        wanted = [("leader", "running"), ("replica", "streaming"), (in_step, "streaming")]

        async def is_whole() -> bool:
            primary = await self.primary()
            members = await primary.members() if primary is not None else []
            found = [(one.get("role"), one.get("state")) for one in members]
            return sorted(map(str, found)) == sorted(map(str, wanted))

        await self._until(is_whole)

    async def until_caught_up(self) -> None:
        """Waits until all that is written by now is on both standbys."""
        primary = await self.the_primary()

        async def is_caught_up() -> bool:
            return await primary.ask(BEHIND) == 0

        await self._until(is_caught_up)

    async def _until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not await is_so():
                await asyncio.sleep(POLL_S)

    def _agreed(self) -> dict[str, object]:
        return {
            "ttl": TTL_S,
            "loop_wait": 1,
            "retry_timeout": 3,
            "maximum_lag_on_failover": 1 << 40,  # a standby that lags is better than none
            "synchronous_mode": self.replication == "synchronous",
            "postgresql": {"use_pg_rewind": True, "use_slots": True},
        }

    async def _start_etcd(self, stack: AsyncExitStack) -> int:
        directory = self.home / "etcd"
        directory.mkdir()
        self._programs.account.own(directory)
        clients, peers = (stack.enter_context(reserved_port()) for _ in range(2))
        addresses = [f"http://{HOST}:{port}" for port in (clients, peers)]
        arguments = {
            "data-dir": "data",
            "listen-client-urls": addresses[0],
            "advertise-client-urls": addresses[0],
            "listen-peer-urls": addresses[1],
            "initial-advertise-peer-urls": addresses[1],
            "initial-cluster": f"default={addresses[1]}",
        }
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen(
                self._programs.command(
                    str(self._programs.etcd), *(f"--{key}={arguments[key]}" for key in arguments)
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - no threads of ours
            )
        stack.callback(process.wait)
        stack.callback(process.kill)

        async def is_up() -> bool:
            assert process.poll() is None, (directory / "log").read_text()[-2000:]
            version = await fetch_json(f"{addresses[0]}/version")
            return version.get("etcdcluster", "not_decided") != "not_decided"

        await self._until(is_up)
        return clients


@asynccontextmanager
async def running_cluster(replication: Replication) -> AsyncIterator[Cluster]:
    """A cluster, until the end of the block."""
    home = reachable_directory()
    guard = subprocess.Popen(
        [sys.executable, keeper.__file__, str(home)], stdin=subprocess.PIPE, cwd="/"
    )
    cluster = Cluster(home, find_programs(), replication)
    try:
        async with AsyncExitStack() as stack:
            try:
                await cluster.open(stack)
                yield cluster
            finally:
                for node in cluster.nodes.values():
                    node.kill()
    finally:
        kill_all(home)
        guard.communicate()
        if "FAULTS_KEEP" in os.environ:
            print(f"kept in {home}: the cluster")
        else:
            shutil.rmtree(home, ignore_errors=True)
