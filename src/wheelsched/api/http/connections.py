"""Connections to the API: limits, header timeout, and responses to malformed requests.

Invariant: there are never more than `max_connections`, nor more than `max_connections_per_address`
from one address, except those of workers. Workers do not use up the connections of others. A
connection that has not sent complete headers within `head_timeout_ms` is
closed. Every malformed request gets a problem document.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any, Final, TypeAlias, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from wheelsched.api.http.problems import problem_of
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

# Larger than the API's own limits, so that the API itself can report what is too large.
PARSED_HEADER_BYTES: Final = 64 << 10
PARSED_LINE_BYTES: Final = 16 << 10
IDLE_S: Final = 75.0  # between two requests, including the headers of the next one
LINGER_S: Final = 1.0  # how long the rest of a body is drained after the response
WORKERS_SHARE: Final = 5 / 6  # of all connections, for workers beyond the limit of their address


Network: TypeAlias = IPv4Address | IPv6Network

# Called when the API has stopped listening: requests that wait should end.
LEAVE: Final[web.AppKey[Callable[[], Awaitable[None]]]] = web.AppKey("leave")


class Connection(web.RequestHandler):
    """One client connection."""

    __slots__ = ("_connections", "_head_timer", "lost", "network")

    def __init__(self, server: web.Server, connections: "Connections") -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # None disables aiohttp's access log
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            max_field_size=PARSED_HEADER_BYTES,
            max_line_size=PARSED_LINE_BYTES,
            auto_decompress=False,  # compressed bodies are rejected
        )
        self._connections = connections
        self.network: Network | None = None
        self.lost: asyncio.Future[None] | None = None  # done when the connection has ended
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
            self._connections.head_timeout_s, self._on_head_timeout
        )

    def connection_lost(self, exc: BaseException | None) -> None:
        self.head_received()
        self._connections.leave(self)
        if self.lost is not None and not self.lost.done():
            self.lost.set_result(None)
        super().connection_lost(exc)

    def head_received(self) -> None:
        """Stops the header timer; later requests on this connection have `IDLE_S`."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def exempt(self) -> None:
        """Exempts the connection from the limit per address."""
        self._connections.exempt(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to a malformed request, or to an error outside the middleware."""
        if status == HTTPStatus.BAD_REQUEST:
            return _response_of(_unreadable(exc))
        # Logs; raises if the response has begun.
        super().handle_error(request, status, exc, message)
        return _response_of(web.HTTPInternalServerError())

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends a response; turns aiohttp's own error responses into problem documents."""
        if isinstance(resp, web.HTTPException):
            resp = _response_of(resp)
        return await super().finish_response(request, resp, start_time)

    def _on_head_timeout(self) -> None:
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
    """All open connections."""

    def __init__(self, config: ApiConfig) -> None:
        self.head_timeout_s = config.head_timeout_ms / 1_000
        self._limit = config.max_connections
        self._limit_per_address = config.max_connections_per_address
        self._most_exempt = int(config.max_connections * WORKERS_SHARE)
        self._open: set[Connection] = set()
        self._exempt: set[Connection] = set()
        self._by_network: Counter[Network] = Counter()

    def admit(self, connection: Connection) -> None:
        """Counts a connection, or rejects it."""
        network = connection.network
        if len(self._open) >= self._limit:
            raise ApiBusy
        if network is not None and self._by_network[network] >= self._limit_per_address:
            raise ConnectionLimitReached
        self._open.add(connection)
        if network is not None:
            self._by_network[network] += 1

    def leave(self, connection: Connection) -> None:
        """Removes a connection, if it had been admitted."""
        if connection in self._open:
            self._open.remove(connection)
            self._exempt.discard(connection)
            self._uncount(connection)

    def exempt(self, connection: Connection) -> None:
        """Does not count a connection for its address any more, unless very many are exempt."""
        if connection in self._open and len(self._exempt) < self._most_exempt:
            self._exempt.add(connection)
            self._uncount(connection)

    def _uncount(self, connection: Connection) -> None:
        network, connection.network = connection.network, None
        if network is not None:
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]


def network_of(peer: object) -> Network | None:
    """The client network that connection limits apply to: an IPv4 address or an IPv6 /64.

    None for a Unix socket, which only local programs can open.
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
    """An aiohttp runner that uses `Connection`."""

    def __init__(self, app: web.Application, config: ApiConfig) -> None:
        super().__init__(app, shutdown_timeout=config.stop_timeout_ms / 1_000)
        self._connections = Connections(config)

    async def cleanup(self) -> None:
        """Stops listening, lets waiting requests and streams end by themselves, then ends all.

        aiohttp reads nothing more from a connection once its own shutdown begins.
        """
        for site in list(self.sites):
            await site.stop()
        if (leave := self.app.get(LEAVE)) is not None:
            await leave()
        await super().cleanup()

    @property
    def server(self) -> Any:
        """The protocol factory of the listening socket."""
        server = cast(web.Server, super().server)
        return lambda: Connection(server, self._connections)


def exempt(request: web.BaseRequest) -> None:
    """Exempts the connection of a worker from the limit per address: its token is known, and many
    workers may share one address."""
    if isinstance(request.protocol, Connection):
        request.protocol.exempt()


def loss_of(request: web.BaseRequest) -> asyncio.Future[None] | None:
    """A future that is done when the connection of this request has ended."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return None
    if connection.lost is None:
        connection.lost = asyncio.get_running_loop().create_future()
        if connection.transport is None:
            connection.lost.set_result(None)
    return connection.lost


def mark_head_received(request: web.BaseRequest) -> None:
    """Tells the connection that the headers of this request are complete."""
    if isinstance(request.protocol, Connection):
        request.protocol.head_received()


def _response_of(error: Exception) -> web.Response:
    """A problem response that closes the connection."""
    problem = problem_of(error)
    response = web.Response(
        body=msgspec.json.encode(problem), status=problem.status, content_type=CONTENT_TYPE
    )
    response.force_close()
    return response


def _unreadable(error: BaseException | None) -> WheelschedError:
    if isinstance(error, LineTooLong):
        return HeadersTooLarge(
            f"the request line may have at most {PARSED_LINE_BYTES:,} bytes, "
            f"and a header at most {PARSED_HEADER_BYTES:,}"
        )
    message = error.message if isinstance(error, BadHttpMessage) else ""
    if "too many headers" in message.lower():
        return HeadersTooLarge("the request has too many headers")
    return RequestUnreadable()
