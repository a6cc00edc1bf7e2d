"""Connections to the API: how many there are, how long a head may take, and what is no HTTP.

Invariant: there are never more than `max_connections`, nor more than
`max_connections_per_address` from one address; each has sent a whole head within
`head_timeout_ms`, or is closed; and whatever cannot be read as a request is answered by a problem.
"""

import asyncio
from collections import Counter
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any, Final, TypeAlias, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from wheelsched.api.problems import problem_of
from wheelsched.config import ApiConfig
from wheelsched.errors import (
    ApiBusy,
    ConnectionLimitReached,
    HeadersTooLarge,
    RequestRefused,
    RequestUnreadable,
    WheelschedError,
)
from wheelsched.wire.problem import CONTENT_TYPE

# More than the API reads, so that it can say itself what is too large.
PARSED_HEADER_BYTES: Final = 64 << 10
PARSED_LINE_BYTES: Final = 16 << 10
IDLE_S: Final = 75.0  # of a connection between two requests, with the next head or without one
LINGER_S: Final = 1.0  # what is sent of a body after its answer is read that long, and thrown away


Network: TypeAlias = IPv4Address | IPv6Network


class Connection(web.RequestHandler):
    """One connection."""

    __slots__ = ("_connections", "_head_timer", "network")

    def __init__(self, server: web.Server, connections: "Connections") -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # aiohttp means that by it: none is kept
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            max_field_size=PARSED_HEADER_BYTES,
            max_line_size=PARSED_LINE_BYTES,
            auto_decompress=False,  # whoever sends what is compressed is refused
        )
        self._connections = connections
        self.network: Network | None = None
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.network = network_of(transport.get_extra_info("peername"))
        try:
            self._connections.admit(self)
        except RequestRefused as refusal:
            self._refuse(refusal)
            return
        self._head_timer = asyncio.get_running_loop().call_later(
            self._connections.head_timeout_s, self._give_up
        )

    def connection_lost(self, exc: BaseException | None) -> None:
        self.head_came()
        self._connections.leave(self)
        super().connection_lost(exc)

    def head_came(self) -> None:
        """The first request is there; the next ones have `IDLE_S`."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or failed where nobody else could answer."""
        if status == HTTPStatus.BAD_REQUEST:
            return _response_of(_unreadable(exc))
        super().handle_error(request, status, exc, message)  # logs; raises after half an answer
        return _response_of(web.HTTPInternalServerError())

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer; what aiohttp refuses by itself has not been made a problem yet."""
        if isinstance(resp, web.HTTPException):
            resp = _response_of(resp)
        return await super().finish_response(request, resp, start_time)

    def _give_up(self) -> None:
        self._head_timer = None
        self._refuse(web.HTTPRequestTimeout())

    def _refuse(self, error: Exception) -> None:
        problem = problem_of(error)
        body = msgspec.json.encode(problem)
        head = (
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        if self.transport is not None:
            self.transport.write(head.encode() + body)
        self.force_close()


class Connections:
    """All of them."""

    def __init__(self, config: ApiConfig) -> None:
        self.head_timeout_s = config.head_timeout_ms / 1_000
        self._limit = config.max_connections
        self._limit_per_address = config.max_connections_per_address
        self._open: set[Connection] = set()
        self._by_network: Counter[Network] = Counter()

    def admit(self, connection: Connection) -> None:
        """Count a connection, or refuse it."""
        network = connection.network
        if len(self._open) >= self._limit:
            raise ApiBusy
        if network is not None and self._by_network[network] >= self._limit_per_address:
            raise ConnectionLimitReached
        self._open.add(connection)
        if network is not None:
            self._by_network[network] += 1

    def leave(self, connection: Connection) -> None:
        """Forget a connection, unless it was refused."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        network = connection.network
        if network is not None:
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]


def network_of(peer: object) -> Network | None:
    """What counts as one address: an IPv4 address, or the /64 that a host with IPv6 has for itself.

    None for a Unix socket, which only programs of this machine can open.
    """
    match peer:
        case (str(host), *_):
            address = ip_address(host.partition("%")[0])
        case _:
            return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Network((address, 64), strict=False)


class Runner(web.AppRunner):
    """aiohttp's runner, with connections of our own."""

    def __init__(self, app: web.Application, config: ApiConfig) -> None:
        super().__init__(app, shutdown_timeout=config.stop_timeout_ms / 1_000)
        self._connections = Connections(config)

    @property
    def server(self) -> Any:
        """What a socket asks for the protocol of a new connection."""
        server = cast(web.Server, super().server)
        return lambda: Connection(server, self._connections)


def note_head(request: web.BaseRequest) -> None:
    """Tell the connection of a request that its head has come."""
    if isinstance(request.protocol, Connection):
        request.protocol.head_came()


def _response_of(error: Exception) -> web.Response:
    """The last answer on its connection."""
    problem = problem_of(error)
    response = web.Response(
        body=msgspec.json.encode(problem), status=problem.status, content_type=CONTENT_TYPE
    )
    response.force_close()
    return response


def _unreadable(error: BaseException | None) -> WheelschedError:
    if isinstance(error, LineTooLong):
        return HeadersTooLarge(
            f"a line of a request has at most {PARSED_LINE_BYTES:,} bytes, "
            f"and a header at most {PARSED_HEADER_BYTES:,}"
        )
    told = error.message if isinstance(error, BadHttpMessage) else ""
    if "too many headers" in told.lower():
        return HeadersTooLarge("the request has more headers than the API reads")
    return RequestUnreadable()
