"""Malformed requests, and the limits of connections."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from tests.api import Answered, Api, document, serve
from tests.waiting import until

from wheelsched.api.http.connections import network_of
from wheelsched.testing import MemoryStore
from wheelsched.vitals import ApiVitals

DEADLINE_S = 60
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
GET = b"GET /api/v1/jobs HTTP/1.1\r\n"
POST = b"POST /api/v1/jobs HTTP/1.1\r\n"


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Api]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store, **settings) as api, asyncio.timeout(DEADLINE_S):
        yield api


class Line:
    """A raw client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, sent: bytes) -> None:
        self._writer.write(sent)

    async def answer(self) -> Answered:
        """Reads one response, which must be a problem document."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers: Any = {name.lower(): value for name, value in (line.split(": ") for line in lines)}
        body = await self._reader.readexactly(int(headers["content-length"]))
        assert headers["content-type"].startswith("application/problem+json"), head
        return Answered(int(first.split()[1]), headers, msgspec.json.decode(body))

    async def rest(self) -> bytes:
        """Reads until the connection is closed."""
        return await self._reader.read()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def opened(api: Api, sent: bytes) -> AsyncIterator[Line]:
    async with using(Line(*await asyncio.open_connection(*address_of(api)))) as line:
        line.send(sent)
        yield line


@asynccontextmanager
async def using(line: Line) -> AsyncIterator[Line]:
    try:
        yield line
    finally:
        await line.close()


def address_of(api: Api) -> tuple[str, int]:
    host, _, port = api.url.removeprefix("http://").rpartition(":")
    return host, int(port)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x00\xa5hello\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (GET + b"\r\n", 400),  # it names no host
        (GET + HOST + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (GET + HOST + b"X-A: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (GET + HOST + b"".join(b"X-%d: a\r\n" % n for n in range(500)) + b"\r\n", 431),
        (POST + HOST + b"Content-Length: abc\r\n\r\n", 400),
        (POST + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n", 400),
        (POST + HOST + JSON + b"Expect: a miracle\r\nContent-Length: 2\r\n\r\n{}", 417),
    ],
)
async def test_a_malformed_request_gets_a_problem_document(sent: bytes, status: int) -> None:
    async with serving() as api, opened(api, sent) as line:
        refused = await line.answer()
        assert (refused.status, refused.body["status"]) == (status, status)
        assert refused.body["detail"]


@pytest.mark.parametrize(
    ("method", "header", "status"),
    [
        (b"PATCH", b'If-Match: "\xff"', 412),
        (b"DELETE", b'If-Match: "\xff"', 412),
        (b"PATCH", b"Content-Type: text/\xff", 415),
        (b"DELETE", b"Content-Encoding: \xff", 415),
    ],
)
async def test_invalid_utf8_in_a_header_is_quoted_safely(
    method: bytes, header: bytes, status: int
) -> None:
    async with serving() as api:
        job_id = (await api.create())["job_id"].encode()
        head = method + b" /api/v1/jobs/" + job_id + b" HTTP/1.1\r\n" + HOST
        head += f"Authorization: Bearer {api.token}\r\n".encode() + header + b"\r\n"
        kind = b"" if header.startswith(b"Content-Type") else JSON
        async with opened(api, head + kind + b"Content-Length: 2\r\n\r\n{}") as line:
            assert (await line.answer()).status == status


async def test_an_error_outside_the_handlers_gets_a_problem_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(ApiVitals, "observe", fail)
    async with serving() as api, opened(api, GET + HOST + b"\r\n") as line:
        assert (await line.answer()).status == 500
        assert await line.rest() == b""


async def test_a_truncated_body_is_a_client_error() -> None:
    async with serving() as api:
        head = POST + HOST + JSON + f"Authorization: Bearer {api.token}\r\n".encode()
        chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
        async with opened(api, head + chunked) as line:
            line.send(b"ZZ\r\n\r\n")
            assert (await line.answer()).status == 400


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b'{"name": 1}', mtime=0)])
async def test_compressed_bodies_are_rejected(body: bytes) -> None:
    async with serving() as api:
        for encoding in ("gzip", "deflate", "br", "x"):
            refused = await api.post("/jobs", body, headers={"Content-Encoding": encoding})
            assert (refused.status, refused.body["type"][-18:]) == (415, "content-compressed")
        plain = await api.post("/jobs", document(), headers={"Content-Encoding": "identity"})
        assert plain.status == 201


async def test_a_rejected_request_closes_the_connection() -> None:
    async with serving() as api:
        for authorization, path, status in (
            (b"Authorization: Bearer wst_nobody\r\n", b"/jobs", 401),
            (f"Authorization: Bearer {api.token}\r\n".encode(), b"/jobs", 413),
        ):
            head = b"POST /api/v1" + path + b" HTTP/1.1\r\n" + HOST + JSON + authorization
            async with opened(api, head + b"Content-Length: 99000000\r\n\r\n{") as line:
                refused = await line.answer()
                assert (refused.status, refused.headers["connection"]) == (status, "close")
                assert await line.rest() == b""


@pytest.mark.parametrize("sent", [b"", GET, GET + HOST])
async def test_missing_headers_time_out(sent: bytes) -> None:
    async with serving(head_timeout_ms=20) as api, opened(api, sent) as line:
        assert (await line.answer()).status == 408
        assert await line.rest() == b""


async def test_a_slow_body_does_not_hit_the_header_timeout() -> None:
    async with serving(head_timeout_ms=20, body_timeout_ms=200) as api:
        head = POST + HOST + JSON + f"Authorization: Bearer {api.token}\r\n".encode()

        async def has_request_timed_out() -> bool:
            """False if the connection did: a busy machine may take longer for the headers."""
            async with opened(api, head + b"Content-Length: 9\r\n\r\n{") as line:
                slow = await line.answer()
            assert slow.status == 408
            return bool(slow.body["request_id"])

        await until(has_request_timed_out)


async def test_one_address_cannot_use_up_all_connections() -> None:
    """Of 2,000 connections, those beyond the limit per address get a response."""
    async with (
        serving(max_connections_per_address=50, head_timeout_ms=DEADLINE_S * 1_000) as api,
        AsyncExitStack() as held,
    ):
        first = [await held.enter_async_context(opened(api, GET)) for _ in range(50)]
        for _ in range(200):
            async with opened(api, GET + HOST) as refused:
                told = await refused.answer()
                assert told.status == 429
                assert "from this address" in told.body["detail"]
                assert await refused.rest() == b""
        neighbour = await asyncio.open_connection(*address_of(api), local_addr=("127.0.0.2", 0))
        other = await held.enter_async_context(using(Line(*neighbour)))
        other.send(GET + HOST + b"\r\n")
        assert (await other.answer()).status == 401
        first[0].send(HOST + b"Connection: close\r\n\r\n")
        assert (await first[0].answer()).status == 401
        assert await first[0].rest() == b""
        async with opened(api, GET + HOST + b"\r\n") as next_one:
            assert (await next_one.answer()).status == 401


async def test_connections_without_headers_are_closed_and_replaced() -> None:
    async with serving(max_connections_per_address=1, head_timeout_ms=20) as api:
        async with opened(api, GET) as half:
            assert (await half.answer()).status == 408
            assert await half.rest() == b""
        async with opened(api, GET + HOST + b"\r\n") as next_one:
            assert (await next_one.answer()).status == 401


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:0:0:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_address(one: str, other: str, is_same: bool) -> None:
    assert (network_of((one, 1)) == network_of((other, 2))) is is_same


def test_a_unix_socket_has_no_address_to_count() -> None:
    assert network_of("") is None
    assert network_of(None) is None


async def test_connections_beyond_the_limit_are_rejected() -> None:
    async with (
        serving(max_connections=2, head_timeout_ms=DEADLINE_S * 1_000) as api,
        opened(api, GET) as first,
        opened(api, GET),
    ):
        async with opened(api, GET) as refused:
            told = await refused.answer()
            assert (told.status, told.body["type"][-8:]) == (503, "api-busy")
            assert await refused.rest() == b""
        first.send(HOST + b"Connection: close\r\n\r\n")
        assert (await first.answer()).status == 401
        assert await first.rest() == b""
        async with opened(api, GET + HOST + b"\r\n") as next_one:
            assert (await next_one.answer()).status == 401
