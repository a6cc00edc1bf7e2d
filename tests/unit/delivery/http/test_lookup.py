import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from wheelsched.delivery.http.lookup import MAX_ADDRESSES, ThreadedLookup


class NameServer:
    """Returns 100 addresses when the test allows it. Names that begin with `no` are unknown."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked_by: set[str] = set()

    def getaddrinfo(self, host: str, port: int | None, *rest: object) -> list[object]:
        self.asked_by.add(threading.current_thread().name)
        self.answers.wait()
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", (f"192.0.2.{last}", 0)) for last in range(100)]


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    name_server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", name_server.getaddrinfo)
    yield name_server
    name_server.answers.set()


async def test_names_become_addresses_and_not_too_many(name_server: NameServer) -> None:
    name_server.answers.set()
    lookup = ThreadedLookup()
    found = await lookup.resolve("example.org")
    assert len(found) == MAX_ADDRESSES
    assert found[0][4] == ("192.0.2.0", 0)
    with pytest.raises(socket.gaierror, match="not known"):
        await lookup.resolve("no.example")
    await lookup.close()


async def test_there_are_as_many_threads_as_questions_at_once(name_server: NameServer) -> None:
    lookup = ThreadedLookup()
    hosts = [f"{number}.example" for number in range(5)]
    asking = [asyncio.create_task(lookup.resolve(host)) for host in hosts]
    await asyncio.wait(asking, timeout=0)
    asking[0].cancel()  # its thread is not free for that
    more = asyncio.create_task(lookup.resolve("example.org"))
    async with asyncio.timeout(60):
        while len(name_server.asked_by) < 6:
            await asyncio.sleep(0.001)
    name_server.answers.set()
    await asyncio.wait([*asking, more])
    for host in hosts:
        await lookup.resolve(host)
    assert len(name_server.asked_by) == 6
    await lookup.close()


async def test_the_hosts_file_counts() -> None:
    lookup = ThreadedLookup()
    found = await lookup.resolve("localhost")
    assert {address[4][0] for address in found} <= {"127.0.0.1", "::1"}
    await lookup.close()


HANGS = """
import asyncio, socket, threading
from wheelsched.delivery.http.lookup import ThreadedLookup

async def main():
    asked = threading.Event()
    def hang(*rest):
        asked.set()
        threading.Event().wait()
    socket.getaddrinfo = hang
    lookup = ThreadedLookup()
    asking = asyncio.create_task(lookup.resolve("example.org"))
    await asyncio.to_thread(lambda: None)
    asked.wait(60)
    asking.cancel()
    await lookup.close()

asyncio.run(main())
"""


def test_a_name_server_that_hangs_keeps_no_process_from_ending() -> None:
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=60)
