"""Opens connections: resolves a host, connects and starts TLS.

Invariant: the egress guard has checked every address that is connected to, in the form that the
kernel gets. TLS verifies the host of the URL, and only HTTP/1.1 is offered.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from wheelsched.config import DispatchConfig
from wheelsched.delivery.http.connection import Connection
from wheelsched.delivery.http.dns_cache import DnsCache
from wheelsched.delivery.http.egress import EgressGuard
from wheelsched.delivery.http.route import HttpRoute
from wheelsched.errors import AddressForbidden

NEXT_ADDRESS_S: Final = 0.25  # delay before trying the next address in parallel


class Dialer:
    """Opens connections for the running loop."""

    def __init__(self, config: DispatchConfig, names: DnsCache) -> None:
        self._connect_timeout_s = config.connect_timeout_ms / 1_000
        self.guard = EgressGuard(config.egress.rules)
        self._names = names
        self._loop = asyncio.get_running_loop()
        self._tls = ssl.create_default_context()
        self._tls.set_alpn_protocols(["http/1.1"])

    async def dial(self, route: HttpRoute, make: Callable[[], Connection]) -> Connection:
        """Connect the connection that `make` creates. Raises `OSError`."""
        endpoint = route.endpoint
        host = endpoint.host.strip("[]")
        addresses = _literal(host, endpoint.port) or await self._names.resolve(
            route.tenant_id, host, endpoint.port
        )
        tls = self._tls if endpoint.scheme == "https" else None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                opened = await self._connect(addresses)
                _, connection = await self._loop.create_connection(
                    make,
                    sock=opened,
                    ssl=tls,
                    server_hostname=host.removesuffix(".") if tls else None,
                )
        except TimeoutError as error:
            # `TimeoutError` is reserved for the deadline of the request.
            raise ConnectionError(0, "timed out") from error
        connection.socket = opened
        return connection

    async def _connect(self, addresses: Sequence[AddrInfoType]) -> socket.socket:
        """A socket that is connected to one of the addresses.

        A host is forbidden only if all of its addresses are. If an allowed one did not respond, the
        attempt may be retried.
        """
        try:
            opened = await aiohappyeyeballs.start_connection(
                addresses,
                happy_eyeballs_delay=NEXT_ADDRESS_S,
                interleave=1,
                loop=self._loop,
                socket_factory=self.guard.open_socket,
            )
        except OSError as error:
            if not any(map(self.guard.allows, addresses)):
                raise AddressForbidden from error
            raise
        # A request is one write, so there is nothing to coalesce.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened


def _literal(host: str, port: int) -> list[AddrInfoType]:
    """The address, if the host is an IP address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    return []
