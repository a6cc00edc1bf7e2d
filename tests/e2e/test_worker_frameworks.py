"""The worker inside other frameworks, as docs/WORKER.md shows it, on real servers."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from wheelsched.worker.testing import sign_callback

pytestmark = pytest.mark.proof  # each framework in a process of its own

ROOT = Path(__file__).parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
Post = Callable[..., Awaitable[tuple[int, str]]]


def documented(text: str) -> str:
    """The block of WORKER.md that has a text in it."""
    fenced = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    blocks = fenced.findall((ROOT / "docs/WORKER.md").read_text())
    (found,) = [block for block in blocks if text in block]
    return str(found)


# What each block is served by: the socket to listen on is standard input.
ON_UVICORN = """
import uvicorn
uvicorn.run(app, fd=0, log_level="warning")
"""
ON_WAITRESS = """
import signal, socket, sys, waitress
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    waitress.serve(application, sockets=[socket.socket(fileno=0)], threads=4)
finally:
    worker.wsgi.stop()
"""
FASTAPI = documented("worker.mount(app")
FLASK = documented("DispatcherMiddleware(")
DJANGO = """
from django.conf import settings
settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x", APPEND_SLASH=True,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware",
                "django.middleware.csrf.CsrfViewMiddleware"],
)
""" + documented("csrf_exempt")

HANDLERS = """
import asyncio, time

@worker.job("echo")
async def echo(payload): raise ValueError(payload)

@worker.job("echo-sync")
def echo_sync(payload): raise ValueError(payload)
"""
LONG = """
import asyncio

@worker.job("ends", long=True)
async def end(payload):
    print("began", flush=True)
    await asyncio.sleep(0.5)

@worker.job("ends-never", long=True)
async def never(payload):
    print("began", flush=True)
    await asyncio.Event().wait()
"""
SERVED = {
    "fastapi": FASTAPI + HANDLERS + ON_UVICORN,
    "flask": FLASK + HANDLERS + "application = app\n" + ON_WAITRESS,
    "django": DJANGO
    + HANDLERS
    + """
from django.core.wsgi import get_wsgi_application
from django.urls import path
urlpatterns = [path("hooks", hooks), path("hooks/", hooks)]
application = get_wsgi_application()
"""
    + ON_WAITRESS,
}


@asynccontextmanager
async def serving(
    program: str, **environment: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Post]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            stdin=listener.fileno(),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | environment,
        )
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    timeout = aiohttp.ClientTimeout(60)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def post(path: str, job_name: str, payload: object = None) -> tuple[int, str]:
                callback = sign_callback(job_name, payload, secret=SECRET)
                async with session.post(
                    origin + path,
                    headers=callback.headers,
                    data=callback.body,
                    allow_redirects=False,
                ) as response:
                    return response.status, await response.text()

            yield process, post
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("framework", SERVED)
async def test_the_documented_worker_serves_its_path_with_and_without_a_slash(
    framework: str,
) -> None:
    async with serving(SERVED[framework]) as (process, post):
        assert await post("/hooks", "echo", 7) == (500, "ValueError: 7")
        assert await post("/hooks/", "echo-sync", 8) == (500, "ValueError: 8")
        assert (await post("/hooks", "unknown"))[0] == 501
        assert (await post("/elsewhere", "echo"))[0] == 404
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()


class Api:
    """What the scheduler's API hears of long runs."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.heard.append((request.path.rsplit("/", 1)[1], json.loads(await request.read())))
        # As if a later attempt had begun: all that a worker needs to know of its report.
        return web.json_response({"title": "stale", "status": 409}, status=409)


@pytest.fixture
async def api() -> AsyncIterator[tuple[Api, str]]:
    api = Api()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield api, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


ON_WSGI = FLASK.replace(
    f'Worker(secrets=["{SECRET}"])',
    f'Worker(secrets=["{SECRET}"], client=Client.from_environment(), config=WorkerConfig('
    "stop_timeout_ms=20_000))\n",
).replace("import Worker", "import Worker, WorkerConfig\nfrom wheelsched.client import Client")
STOPPED = {
    "fastapi": FASTAPI + LONG + ON_UVICORN,
    "flask": ON_WSGI + LONG + "application = app\n" + ON_WAITRESS,
}


@pytest.mark.parametrize("framework", STOPPED)
@pytest.mark.parametrize(
    ("job_name", "stop_timeout_ms", "report"),
    [("ends", "20_000", "complete"), ("ends-never", "200", "fail")],
)
async def test_a_long_run_is_finished_or_reported_when_the_server_gets_sigterm(
    api: tuple[Api, str], framework: str, job_name: str, stop_timeout_ms: str, report: str
) -> None:
    heard, url = api
    program = STOPPED[framework].replace("20_000", stop_timeout_ms)
    async with serving(program, WHEELSCHED_URL=url) as (process, post):
        assert (await post("/hooks", job_name))[0] == 202
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"began\n"
            process.send_signal(signal.SIGTERM)
            await process.wait()
    (told,) = heard.heard
    assert told[0] == report
    if report == "fail":
        assert told[1]["error"] == "the worker stopped before the run ended"
        assert told[1]["retry"] is True
