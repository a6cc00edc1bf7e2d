"""A real server on a loopback port that answers what a test tells it to, and remembers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from msgspec import Struct

from wheelsched.ports import Alarm


class Seen(Struct, frozen=True):
    method: str
    path: str  # with its query, as it was written
    headers: dict[str, str]  # names in lower case
    body: bytes


class Reply(Struct, frozen=True):
    status: int = 200
    body: bytes = b"null"
    headers: dict[str, str] = {}
    is_cut: bool = False  # the connection is, instead


def reply(answer: object, status: int = 200, **headers: str) -> Reply:
    return Reply(status, msgspec.json.encode(answer), headers)


def problem(status: int, kind: str, *fields: tuple[str, str], **headers: str) -> Reply:
    document = {
        "type": f"urn:wheelsched:problem:{kind}",
        "title": "a title",
        "status": status,
        "detail": "what was wrong",
        "errors": [{"pointer": pointer, "detail": detail} for pointer, detail in fields],
    }
    return reply(document, status, **headers)


class Server:
    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.replies: list[Reply] = []  # the last one is given from then on
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(
            Seen(request.method, request.rel_url.raw_path_qs, headers, await request.content.read())
        )
        given = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if given.is_cut:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=given.status, body=given.body, headers=given.headers)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


class Unhurried:
    """A clock on which every sleep is over at once, and remembered."""

    def __init__(self) -> None:
        self.slept_ns: list[int] = []

    def now_ns(self) -> int:
        return sum(self.slept_ns)

    def alarm(self, ring: Callable[[], object]) -> Alarm:
        raise NotImplementedError

    async def sleep(self, delay_ns: int) -> None:
        self.slept_ns.append(delay_ns)
