"""Whatever a worker does, there is an outcome, bounded in memory and time."""

import asyncio
import socket
import ssl
from pathlib import Path
from uuid import uuid4

import pytest
import trustme
from tests.contract.delivery.conftest import World
from tests.ports import reserved_port
from tests.workers import (
    Received,
    Worker,
    read_request,
    reset,
    running_worker,
    scripted_worker,
)

from wheelsched.core.outcome import Failed, Rejected, Succeeded
from wheelsched.delivery.http.lookup import Addresses

SHORT_US = 50_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class DnsCache:
    """A lookup that knows these names, and no others."""

    def __init__(self, **addresses: list[str]) -> None:
        self._addresses = addresses
        self.asked: list[str] = []

    async def resolve(self, host: str) -> Addresses:
        self.asked.append(host)
        if host.startswith("hanging"):
            await asyncio.Event().wait()
        if host not in self._addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, 0),
            )
            for address in self._addresses[host]
        ]

    async def close(self) -> None:
        pass


def server_context(authority: trustme.CA, host: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    return context


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"HTTP/1.1 banana OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_garbage_is_a_failed_attempt(world: World, answer: bytes) -> None:
    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    async with scripted_worker(script) as url:
        outcome = await world.send(url)
    assert isinstance(outcome, Failed)
    assert outcome.http_status is None
    assert outcome.error.startswith("the worker's response was not valid HTTP")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf",
    ],
)
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_that_ends_early_is_a_failed_attempt(
    world: World, answer: bytes, how: str
) -> None:
    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()
        if how == "reset":
            reset(writer)

    async with scripted_worker(script) as url:
        outcome = await world.send(url)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("the connection was lost before the worker responded")
    assert world.begun == 1


@pytest.mark.parametrize("head", [b"Content-Length: 10000000000", b"Connection: close"])
async def test_an_endless_answer_is_cut_off(world: World, head: bytes) -> None:
    cut_off = asyncio.Event()

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        finally:
            cut_off.set()

    async with scripted_worker(script) as url:
        assert await world.send(url) == Succeeded(http_status=200)
        await asyncio.wait_for(cut_off.wait(), 60)


async def test_the_error_of_a_long_answer_is_its_beginning(world: World, worker: Worker) -> None:
    worker.answers(500, "out of paper" + "!" * 100_000)
    outcome = await world.send(worker.url)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(
        "the worker responded with 500 Internal Server Error: out of paper!!"
    )
    assert len(outcome.error) <= 2_000


@pytest.mark.parametrize(
    "beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1"]
)
async def test_a_worker_that_hangs_is_left_at_the_timeout(world: World, beginning: bytes) -> None:
    gone = asyncio.Event()

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        try:
            await read_request(reader)
            writer.write(beginning)
            await reader.read(-1)
        finally:
            gone.set()

    async with scripted_worker(script) as url:
        outcome = await world.send(url, timeout_us=SHORT_US)
        assert outcome == Failed(error="the worker did not respond before the timeout")
        if world.begun:  # a machine can be so slow that it never came to that
            await asyncio.wait_for(gone.wait(), 60)


async def test_a_worker_that_drips_is_left_at_the_timeout(world: World) -> None:
    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with scripted_worker(script) as url:
        outcome = await world.send(url, timeout_us=SHORT_US)
    assert outcome == Failed(error="the worker did not respond before the timeout")


async def test_nothing_listens_at_the_target(world: World) -> None:
    with reserved_port() as port:
        outcome = await world.send(f"http://127.0.0.1:{port}/")
    assert outcome == Failed(error="no connection to the worker: Connection refused")
    assert world.begun == 0


async def test_a_name_that_does_not_exist(world: World) -> None:
    world.make(lookup=DnsCache())
    outcome = await world.send("http://nowhere.example/")
    assert outcome == Failed(error="no connection to the worker: Name or service not known")
    assert world.begun == 0


async def test_a_name_that_leads_inside_is_not_followed(world: World, worker: Worker) -> None:
    world.make(allow=[], lookup=DnsCache(**{"rebound.example": ["127.0.0.1"]}))
    outcome = await world.send(worker.url.replace("127.0.0.1", "rebound.example"))
    assert outcome == Rejected(error="the target's address is not allowed")
    assert worker.received == []
    assert world.begun == 0


async def test_of_several_addresses_only_the_allowed_are_tried(
    world: World, worker: Worker
) -> None:
    both = DnsCache(**{"both.example": ["169.254.169.254", "10.0.0.1", "127.0.0.1"]})
    world.make(allow=["127.0.0.1/32"], lookup=both)
    outcome = await world.send(worker.url.replace("127.0.0.1", "both.example"))
    assert outcome == Succeeded(http_status=200)


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["10.0.0.1", "127.0.0.1", "::1"]],
)
async def test_an_allowed_address_that_does_not_answer_may_be_tried_again(
    world: World, addresses: list[str]
) -> None:
    world.make(allow=["127.0.0.1/32"], lookup=DnsCache(**{"both.example": addresses}))
    with reserved_port() as port:
        outcome = await world.send(f"http://both.example:{port}/")
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("no connection to the worker")


async def test_an_address_of_the_inside_is_rejected_unsent(world: World, worker: Worker) -> None:
    world.make(allow=[])
    outcome = await world.send(worker.url)
    assert isinstance(outcome, Rejected)
    assert "'127.0.0.1' is a loopback address" in outcome.error
    assert worker.received == []


async def test_a_redirect_to_the_inside_leads_nowhere(world: World, worker: Worker) -> None:
    async with running_worker() as inside:
        worker.answers(307, Location=inside.url)
        assert isinstance(await world.send(worker.url), Rejected)
        assert inside.received == []


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_certificates_are_verified(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    authority = trustme.CA()
    tls = server_context(authority, "127.0.0.1")
    if is_trusted:
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    world.make()
    async with running_worker(tls) as worker:
        outcome = await world.send(worker.url)
        if is_trusted:
            assert outcome == await world.send(worker.url) == Succeeded(http_status=200)
            assert [received.connection for received in worker.received] == [0, 0]
        else:
            assert isinstance(outcome, Failed)
            assert outcome.error.startswith("no connection to the worker: certificate not trusted")
            assert worker.received == []


async def test_a_certificate_of_another_host_is_not_trusted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    world.make()
    tls = server_context(authority, "example.org")
    async with running_worker(tls) as worker:
        outcome = await world.send(worker.url)
    assert isinstance(outcome, Failed)
    assert "certificate not trusted" in outcome.error


async def test_https_to_a_worker_without_tls(world: World, worker: Worker) -> None:
    outcome = await world.send(worker.url.replace("http:", "https:"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("no connection to the worker")


@pytest.mark.parametrize(
    ("connect_timeout_ms", "timeout_us", "error"),
    [
        (50, 60_000_000, "no connection to the worker: timed out"),
        (60_000, SHORT_US, "the worker did not respond before the timeout"),
    ],
)
async def test_a_handshake_that_hangs_is_left(
    world: World, connect_timeout_ms: int, timeout_us: int, error: str
) -> None:
    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        await reader.read(-1)

    world.make(connect_timeout_ms=connect_timeout_ms)
    async with scripted_worker(script) as url:
        outcome = await world.send(url.replace("http:", "https:"), timeout_us=timeout_us)
    assert outcome == Failed(error=error)
    assert world.begun == 0


async def test_a_name_is_looked_up_once_for_a_burst(world: World, worker: Worker) -> None:
    names = DnsCache(**{"worker.example": ["127.0.0.1"]})
    world.make(lookup=names)
    url = worker.url.replace("127.0.0.1", "worker.example")
    outcomes = await asyncio.gather(*(world.send(url) for _ in range(20)))
    assert outcomes == [Succeeded(http_status=200)] * 20
    assert names.asked == ["worker.example"]


async def test_names_that_hang_for_one_tenant_hurt_no_other(world: World, worker: Worker) -> None:
    names = DnsCache(**{"worker.example": ["127.0.0.1"]})
    world.make(lookup=names, lookup_threads=8, connect_timeout_ms=60_000)
    hanging = [
        asyncio.create_task(world.send(f"http://hanging-{number}.example/")) for number in range(50)
    ]
    await asyncio.wait(hanging, timeout=0)
    world.tenant_id = uuid4()
    url = worker.url.replace("127.0.0.1", "worker.example")
    assert await world.send(url) == Succeeded(http_status=200)
    assert not any(sending.done() for sending in hanging)
    for sending in hanging:
        sending.cancel()
    await asyncio.wait(hanging)


async def test_a_fresh_connection_is_tried_once(world: World) -> None:
    connections: list[int] = []

    async def script(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        connections.append(number)
        await read_request(reader)

    async with scripted_worker(script) as url:
        outcome = await world.send(url)
    assert isinstance(outcome, Failed)
    assert connections == [0]


async def test_cancellation_passes_through(world: World, worker: Worker) -> None:
    arrived = asyncio.Event()

    async def answer(received: Received) -> object:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    worker.answer = answer  # type: ignore[assignment] # it never answers
    sending = asyncio.create_task(world.send(worker.url))
    await arrived.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://2130706433/", "", "http://\r\n/"])
async def test_a_target_that_cannot_be_used_is_rejected(world: World, url: str) -> None:
    outcome = await world.send(url)
    assert isinstance(outcome, Rejected)
    assert outcome.error.startswith("the target cannot be used: ")
    assert world.begun == 0
