"""The parent of a shard: it certifies a death that it has seen, and is otherwise not noticed."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import aiohttp
import asyncpg
import pytest
from tests.e2e.processes import children_of, eventually, is_over
from tests.stack import GENEROUS_S, PROGRAM, clean_environment, run
from tests.waiting import WAIT_LIMIT_S

pytestmark = pytest.mark.proof  # shards in processes of their own

A_WHILE_S = 2.0  # in which a certificate would have been written many times over
# The parent of a single shard gives its certificate up after a second, so that a restart does not
# wait. A busy machine may take longer, but not each time.
TRIES = 5


class Leases:
    """The leases of a database, as it shows them."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def ids(self) -> set[UUID]:
        connection = await asyncpg.connect(self._url)
        try:
            return {
                row["shard_id"] for row in await connection.fetch("SELECT * FROM wheelsched.shards")
            }
        finally:
            await connection.close()

    async def until(self, count: int) -> set[UUID]:
        """Waits until there are so many."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while len(ids := await self.ids()) != count:
                await asyncio.sleep(0.02)
        return ids

    async def until_replaced(self, before: set[UUID]) -> set[UUID]:
        """Waits until there are as many as before, and not the same."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while (ids := await self.ids()) == before or len(ids) != len(before):
                await asyncio.sleep(0.02)
        return ids

    async def delete(self) -> None:
        connection = await asyncpg.connect(self._url)
        await connection.execute("DELETE FROM wheelsched.shards")
        await connection.close()

    async def until_ready(self, count: int) -> set[UUID]:
        """Waits until so many say that they are ready, and their parent has heard it."""
        ids = await self.until(count)
        connection = await asyncpg.connect(self._url)
        rows = await connection.fetch("SELECT address FROM wheelsched.shards")
        await connection.close()
        async with asyncio.timeout(WAIT_LIMIT_S), aiohttp.ClientSession() as session:
            for row in rows:
                while not await _is_ready(session, row["address"]):
                    await asyncio.sleep(0.02)
        await asyncio.sleep(A_WHILE_S)
        return ids


async def _is_ready(session: aiohttp.ClientSession, address: str) -> bool:
    async with session.get(f"{address}/readyz") as response:
        return response.status == 200


@pytest.fixture
def leases(database: str) -> Leases:
    return Leases(database)


@contextmanager
def shard(
    database: str, *options: str, prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """`wheelsched shard` in a process group of its own, as a shell or a container starts it."""
    process = subprocess.Popen(
        [*prefix, *PROGRAM, "shard", "--database-url", database, "--log-level", "error", *options],
        start_new_session=True,
        env=clean_environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(GENEROUS_S)


def child_of(process: subprocess.Popen[bytes]) -> int:
    (child,) = children_of(process.pid)
    return child


async def is_certified(leases: Leases, end_shard: Callable[[], Awaitable[None]]) -> bool:
    """Whether the lease ends with a shard. There is no other: only its parent can have ended it."""
    for _ in range(TRIES):
        await end_shard()
        if await leases.ids() == set():
            return True
        await leases.delete()
    return False


async def test_a_killed_shard_loses_its_lease_at_once(database: str, leases: Leases) -> None:
    async def kill_shard() -> None:
        with shard(database) as parent:
            await leases.until(1)
            os.kill(child_of(parent), signal.SIGKILL)
            assert parent.wait(GENEROUS_S) == -signal.SIGKILL

    assert await is_certified(leases, kill_shard)


async def test_a_parent_that_is_told_to_stop_lets_the_shard_leave(
    database: str, leases: Leases
) -> None:
    with shard(database) as parent:
        await leases.until(1)
        child = child_of(parent)
        parent.terminate()
        assert parent.wait(GENEROUS_S) == 0
        assert is_over([child])
        assert await leases.ids() == set()


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
async def test_a_signal_to_parent_and_child_together_is_one_request(
    database: str, leases: Leases, options: tuple[str, ...]
) -> None:
    """As systemd stops a service."""
    with shard(database, *options, "--probe", "127.0.0.1:0") as parent:
        await leases.until_ready(2 if options else 1)  # a parent fails if a child ends before that
        for process_id in (*children_of(parent.pid), parent.pid):
            os.kill(process_id, signal.SIGTERM)
        assert parent.wait(GENEROUS_S) == 0


async def test_a_shard_exits_with_its_parent(database: str, leases: Leases) -> None:
    with shard(database) as parent:
        await leases.until(1)
        child = child_of(parent)
        parent.kill()
        eventually(lambda: is_over([child]))


async def test_a_frozen_shard_is_not_certified(database: str, leases: Leases) -> None:
    """Its parent has not waited for it, however long it is silent."""
    with shard(database) as parent:
        before = await leases.until(1)
        child = child_of(parent)
        os.kill(child, signal.SIGSTOP)
        await asyncio.sleep(A_WHILE_S)
        assert await leases.ids() == before
        os.kill(child, signal.SIGCONT)


async def test_a_parent_does_not_hear_what_nohup_silences(database: str, leases: Leases) -> None:
    with shard(database, prefix=["nohup"]) as parent:
        await leases.until(1)
        parent.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.5)
        assert parent.poll() is None
        parent.terminate()
        assert parent.wait(GENEROUS_S) == 0


async def test_a_hangup_ends_the_shard_and_its_lease(database: str, leases: Leases) -> None:
    async def hang_up() -> None:
        with shard(database) as parent:
            await leases.until(1)
            parent.send_signal(signal.SIGHUP)
            assert parent.wait(GENEROUS_S) == -signal.SIGHUP

    assert await is_certified(leases, hang_up)


async def test_a_shard_without_a_parent_is_one_process(database: str, leases: Leases) -> None:
    with shard(database, "--no-parent") as process:
        await leases.until(1)
        assert children_of(process.pid) == []
        process.terminate()
        assert process.wait(GENEROUS_S) == 0


def test_a_shard_that_cannot_start_says_so_through_its_parent(empty_database: str) -> None:
    said = run("shard", "--database-url", empty_database, code=1)
    assert said.count("wheelsched db migrate") == 1


async def test_a_restarted_child_keeps_its_new_lease(database: str, leases: Leases) -> None:
    """The certificate is for the one that died."""
    with shard(database, "--processes", "2", "--probe", "127.0.0.1:0") as parent:
        before = await leases.until_ready(2)
        victim = children_of(parent.pid)[0]
        os.kill(victim, signal.SIGKILL)
        after = await leases.until_replaced(before)
        assert len(after & before) == 1
        await asyncio.sleep(A_WHILE_S)
        assert await leases.ids() == after
