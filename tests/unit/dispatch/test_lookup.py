import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from wheelsched.dispatch.lookup import MAX_ADDRESSES, Addresses, KeptLookup, ThreadedLookup


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A name server that answers when it is told to, with a hundred addresses."""
    answers = threading.Event()

    def getaddrinfo(host: str, port: int, *rest: object) -> list[object]:
        answers.wait()
        return [(socket.AF_INET, 1, 6, "", (f"192.0.2.{last}", port)) for last in range(100)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answers
    answers.set()


async def test_names_become_addresses_and_not_too_many(name_server: threading.Event) -> None:
    name_server.set()
    lookup = ThreadedLookup(threads=1, timeout_ms=60_000)
    found = await lookup.resolve("example.org", 443)
    assert len(found) == MAX_ADDRESSES
    assert found[0][4] == ("192.0.2.0", 443)
    await lookup.close()


async def test_a_name_server_that_hangs_is_left_at_the_timeout(
    name_server: threading.Event,
) -> None:
    lookup = ThreadedLookup(threads=1, timeout_ms=10)
    with pytest.raises(OSError, match=r"did not answer for example\.org") as caught:
        await lookup.resolve("example.org", 443)
    assert not isinstance(caught.value, asyncio.TimeoutError)
    await lookup.close()


class Counting:
    """A lookup that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.error: OSError | None = None

    async def resolve(self, host: str, port: int) -> Addresses:
        self.asked.append(host)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]

    async def close(self) -> None:
        pass


async def test_a_burst_asks_once() -> None:
    names = Counting()
    lookup = KeptLookup(names)
    asking = [asyncio.create_task(lookup.resolve("example.org", 443)) for _ in range(5)]
    other = asyncio.create_task(lookup.resolve("example.com", 443))
    given_up = asking.pop(0)
    await asyncio.wait([given_up], timeout=0)
    given_up.cancel()  # the others wait on
    names.may_answer.set()
    found = await asyncio.gather(*asking, other)
    assert {each[0][4] for each in found} == {("192.0.2.1", 443)}
    assert sorted(names.asked) == ["example.com", "example.org"]
    await lookup.close()


async def test_a_failure_is_not_kept() -> None:
    names = Counting()
    names.may_answer.set()
    names.error = OSError("no such name")
    lookup = KeptLookup(names)
    with pytest.raises(OSError, match="no such name"):
        await lookup.resolve("example.org", 443)
    names.error = None
    assert await lookup.resolve("example.org", 443)
    await lookup.close()


async def test_an_answer_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Counting()
    names.may_answer.set()
    lookup = KeptLookup(names)
    await lookup.resolve("example.org", 443)
    await lookup.resolve("example.org", 443)
    assert len(names.asked) == 1
    monkeypatch.setattr("wheelsched.dispatch.lookup.KEPT_S", 0)
    await lookup.resolve("example.com", 443)
    await lookup.resolve("example.com", 443)
    assert len(names.asked) == 3
    await lookup.close()


async def test_no_more_is_kept_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheelsched.dispatch.lookup.MAX_KEPT", 2)
    names = Counting()
    names.may_answer.set()
    lookup = KeptLookup(names)
    for host in ("a.example", "b.example", "c.example", "b.example", "c.example", "a.example"):
        await lookup.resolve(host, 443)
    assert names.asked == ["a.example", "b.example", "c.example", "a.example"]
    await lookup.close()
