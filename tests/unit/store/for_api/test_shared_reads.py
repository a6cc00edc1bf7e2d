"""Reads that wait for a connection at the same time share a statement; no other reads do."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import cast

import pytest

from wheelsched.errors import StoreUnavailable
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.for_api.shared_reads import MAX_ITEMS, SharedReads


class Statements:
    """A database whose connections are free, and whose statements end, when the test says so."""

    def __init__(self) -> None:
        self.connections = asyncio.Semaphore(0)
        self.sent: list[tuple[str, set[int]]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.reads = SharedReads(cast("Database", self), self._fetch)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        async with self.connections:
            yield

    async def _fetch(self, _: Connection, key: str, items: Collection[int]) -> set[int]:
        self.sent.append((key, set(items)))
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]
        return set(items)

    def read(self, key: str, item: int) -> asyncio.Task[set[int]]:
        return asyncio.create_task(self.reads.read(key, item))

    async def send(self) -> None:
        """Frees a connection for the statement that has waited longest."""
        await settle()
        self.connections.release()
        await settle()


@pytest.fixture
async def statements() -> Statements:
    return Statements()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_reads_that_wait_share_a_statement(statements: Statements) -> None:
    reads = [statements.read("a", item) for item in (1, 2, 2)]
    await statements.send()
    statements.answers[0].set_result(None)
    assert await asyncio.gather(*reads) == [{1, 2}] * 3
    assert statements.sent == [("a", {1, 2})]


async def test_a_read_does_not_join_a_statement_that_was_sent(statements: Statements) -> None:
    first = statements.read("a", 1)
    await statements.send()
    second = statements.read("a", 1)
    await statements.send()
    assert statements.sent == [("a", {1}), ("a", {1})]
    statements.answers[1].set_result(None)
    assert await second == {1}
    assert not first.done()
    statements.answers[0].set_result(None)
    assert await first == {1}


async def test_reads_with_different_keys_share_nothing(statements: Statements) -> None:
    reads = [statements.read("a", 1), statements.read("b", 2)]
    await statements.send()
    await statements.send()
    assert statements.sent == [("a", {1}), ("b", {2})]
    for answer in statements.answers:
        answer.set_result(None)
    assert await asyncio.gather(*reads) == [{1}, {2}]


async def test_a_statement_has_a_bounded_number_of_items(statements: Statements) -> None:
    reads = [statements.read("a", item) for item in range(MAX_ITEMS + 1)]
    await statements.send()
    await statements.send()
    assert statements.sent == [("a", set(range(MAX_ITEMS))), ("a", {MAX_ITEMS})]
    for answer in statements.answers:
        answer.set_result(None)
    found = await asyncio.gather(*reads)
    assert all(item in items for item, items in enumerate(found))


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_cancelled_read_leaves_the_statement_to_the_others(
    statements: Statements, is_sent: bool
) -> None:
    cancelled, other = statements.read("a", 1), statements.read("a", 2)
    await settle()
    if is_sent:
        await statements.send()
    cancelled.cancel()
    if not is_sent:
        await statements.send()
    statements.answers[0].set_result(None)
    assert 2 in await other
    assert cancelled.cancelled()


async def test_an_error_reaches_every_read_and_the_next_one_starts_anew(
    statements: Statements,
) -> None:
    reads = [statements.read("a", 1), statements.read("a", 2)]
    await statements.send()
    statements.answers[0].set_exception(StoreUnavailable())
    failed = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(each) for each in failed] == [StoreUnavailable] * 2
    again = statements.read("a", 1)
    await statements.send()
    statements.answers[1].set_result(None)
    assert await again == {1}


async def test_an_error_before_the_statement_is_sent_reaches_its_reads_too(
    statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted() -> None:
        raise StoreUnavailable

    monkeypatch.setattr(statements, "connection", exhausted)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await statements.reads.read("a", 1)
