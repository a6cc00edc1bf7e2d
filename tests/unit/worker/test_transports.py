"""The same worker behind aiohttp, on a real socket, and as an ASGI application."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.unit.worker.callbacks import make_worker, single

from wheelsched.worker import Run, Worker, WorkerConfig


@pytest.fixture
def worker() -> Worker:
    worker = make_worker(config=WorkerConfig(max_body_bytes=100_000, read_timeout_ms=500))

    @worker.job("report")
    async def handle(payload: dict[str, str], run: Run) -> None:
        if payload:
            raise ValueError(payload["error"])

    return worker


@pytest.fixture
async def url(worker: Worker) -> AsyncIterator[str]:
    """The URL of a worker in an application with a body limit smaller than the payload."""
    runner = web.AppRunner(worker.application("/hooks"))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/hooks"
    await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        yield session


async def test_aiohttp_carries_a_callback(url: str, session: aiohttp.ClientSession) -> None:
    headers, body = single()
    async with session.post(url, headers=headers, data=body) as response:
        assert (response.status, await response.read()) == (200, b"")
    headers, body = single('{"error": "grüße"}'.encode(), number=1)
    async with session.put(url, headers=headers, data=body) as response:
        assert (response.status, await response.text()) == (500, "ValueError: grüße")


async def test_aiohttp_reads_no_more_than_the_limit(
    url: str, session: aiohttp.ClientSession
) -> None:
    async with session.post(url, data=b"x" * 100_001) as response:
        assert response.status == 413


async def test_aiohttp_limits_the_time_for_reading_a_body(
    url: str, session: aiohttp.ClientSession
) -> None:
    never = asyncio.Event()

    async def trickle() -> AsyncIterator[bytes]:
        yield b"x"
        await never.wait()

    async with session.post(url, data=trickle()) as response:
        assert response.status == 408


async def test_an_application_that_ends_stops_its_worker(worker: Worker) -> None:
    runner = web.AppRunner(worker.application())
    await runner.setup()
    await runner.cleanup()
    headers, body = single()
    assert (await worker.receiver.receive(headers, body)).status == 503


class Exchange:
    """The server's side of one ASGI call."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = list(messages)
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def scope(headers: dict[str, str]) -> dict[str, Any]:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "method": "POST", "path": "/hooks", "headers": encoded}


async def test_asgi_carries_a_callback_in_pieces(worker: Worker) -> None:
    headers, body = single(b'{"error": "x"}')
    exchange = Exchange(
        {"type": "http.request", "body": body[:5], "more_body": True},
        {"type": "http.request", "body": body[5:]},
    )
    await worker.asgi(scope(headers), exchange.receive, exchange.send)
    start, rest = exchange.sent
    assert start["status"] == 500
    assert (b"content-length", b"13") in start["headers"]
    assert rest["body"] == b"ValueError: x"


async def test_asgi_reads_no_more_than_the_limit(worker: Worker) -> None:
    exchange = Exchange({"type": "http.request", "body": b"x" * 100_001, "more_body": True})
    await worker.asgi(scope({}), exchange.receive, exchange.send)
    assert exchange.sent[0]["status"] == 413


async def test_asgi_limits_the_time_for_reading_a_body(worker: Worker) -> None:
    exchange = Exchange({"type": "http.request", "body": b"x", "more_body": True})
    await worker.asgi(scope({}), exchange.receive, exchange.send)
    assert exchange.sent[0]["status"] == 408


async def test_asgi_sends_nothing_to_a_disconnected_client(worker: Worker) -> None:
    exchange = Exchange({"type": "http.disconnect"})
    await worker.asgi(scope({}), exchange.receive, exchange.send)
    assert exchange.sent == []


async def test_asgi_lives_and_stops_with_its_server(worker: Worker) -> None:
    exchange = Exchange({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    await worker.asgi({"type": "lifespan"}, exchange.receive, exchange.send)
    assert [each["type"] for each in exchange.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    headers, body = single()
    assert (await worker.receiver.receive(headers, body)).status == 503


async def test_asgi_refuses_other_protocols_than_http(worker: Worker) -> None:
    exchange = Exchange()
    with pytest.raises(ValueError, match="websocket"):
        await worker.asgi({"type": "websocket"}, exchange.receive, exchange.send)


class Routes:
    """Records the routes that are added."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def add_route(self, path: str, route: Any, *, include_in_schema: bool = True) -> None:
        self.paths.append(path)


@pytest.mark.parametrize(
    ("path", "paths"),
    [("/hooks", ["/hooks", "/hooks/"]), ("/hooks/", ["/hooks", "/hooks/"]), ("/", ["/"])],
)
def test_a_path_is_mounted_with_and_without_its_slash(
    worker: Worker, path: str, paths: list[str]
) -> None:
    routes = Routes()
    worker.mount(routes, path)
    assert routes.paths == paths


def test_a_path_begins_with_a_slash(worker: Worker) -> None:
    with pytest.raises(ValueError, match="invalid path 'hooks'"):
        worker.mount(Routes(), "hooks")


SERVED = """
import socket
import sys
from aiohttp import web
from tests.unit.worker.callbacks import make_worker

worker = make_worker()

@worker.job("ends")
def end(payload): sys.exit(2)

@worker.job("ends on the loop")
async def end_on_the_loop(payload): sys.exit(2)

@worker.job()
async def handle(payload): pass

web.run_app(worker.application("/hooks"), sock=socket.socket(fileno=0), print=None)
print("ended", flush=True)
"""


async def test_a_handler_that_exits_leaves_its_worker_to_the_other_jobs(
    session: aiohttp.ClientSession,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVED, stdin=listener.fileno(), stdout=asyncio.subprocess.PIPE
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/hooks"
    try:
        answered = []
        for number, job_name in enumerate(("ends", "ends on the loop", "another")):
            headers, body = single(number=number, job_name=job_name)
            async with session.post(url, headers=headers, data=body) as response:
                answered.append((response.status, await response.text()))
        assert answered == [(500, "SystemExit: 2"), (500, "SystemExit: 2"), (200, "")]
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()
        assert (process.returncode, printed.splitlines()[-1]) == (0, b"ended")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
