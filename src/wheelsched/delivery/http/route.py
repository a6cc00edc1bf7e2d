"""HTTP routes: the parts of a target that are prepared once for all its callbacks.

Invariant: while a route is referenced, its tenant and target give the same object. A target whose
URL or headers are no longer valid is never called, even if they were valid at registration.
"""

import re
from collections.abc import Hashable
from typing import Final
from urllib.parse import quote
from uuid import UUID
from weakref import WeakValueDictionary

from wheelsched import __version__
from wheelsched.core.model import HttpTarget
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.target import (
    DEFAULT_PORTS,
    Endpoint,
    check_headers,
    check_method,
    check_url,
)
from wheelsched.errors import InvalidDocument, InvalidField
from wheelsched.ports import Route

# All ASCII characters that are allowed in a request line (RFC 3986); "%" is checked separately.
_PLAIN: Final = "!$&'()*+,-./:;=?@_~%"
_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

NOWHERE: Final = Endpoint(scheme="http", host="", port=0, path="/")


class HttpRoute(Route, frozen=True, eq=False, kw_only=True):
    """A route with its parsed URL and the prepared beginning of its requests."""

    target: HttpTarget
    endpoint: Endpoint = NOWHERE
    pool_key: str = ""  # of its connections: tenant and origin
    head: bytes = b""  # the request line and the common headers
    refusal: str | None = None  # why its target is invalid


class RouteTable:
    """The routes that are in use."""

    def __init__(self, rules: EgressRules) -> None:
        self._rules = rules
        self._routes: WeakValueDictionary[Hashable, HttpRoute] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, tenant_id: UUID, target: HttpTarget) -> HttpRoute:
        headers = tuple(sorted(target.headers.items())) if target.headers else ()
        identity = (tenant_id, target.url, target.method, target.batch, headers)
        route = self._routes.get(identity)
        if route is None:
            route = self._routes[identity] = self._make(tenant_id, target)
        return route

    def _make(self, tenant_id: UUID, target: HttpTarget) -> HttpRoute:
        try:
            endpoint = check_url(target.url, self._rules)
            check_method(target.method)
            check_headers(target.headers)
        except (InvalidField, InvalidDocument) as error:
            return HttpRoute(
                tenant_id=tenant_id,
                target=target,
                batch=target.batch,
                origin=target.url,
                refusal=f"the target cannot be used: {error}",
            )
        return HttpRoute(
            tenant_id=tenant_id,
            target=target,
            batch=target.batch,
            origin=endpoint.origin,
            endpoint=endpoint,
            pool_key=f"{tenant_id.hex} {endpoint.origin}",
            head=_write_head(target, endpoint),
        )


def _write_head(target: HttpTarget, endpoint: Endpoint) -> bytes:
    lines = [
        f"{target.method} {_write_path(endpoint.path)} HTTP/1.1",
        f"Host: {_write_host(endpoint)}",
        "Content-Type: application/json",
        *(f"{name}: {value}" for name, value in target.headers.items()),
    ]
    if not any(name.lower() == "user-agent" for name in target.headers):
        lines.append(f"User-Agent: wheelsched/{__version__}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


def _write_path(path: str) -> str:
    """The path, with the characters escaped that a request line cannot contain."""
    return quote(_LONE_PERCENT.sub("%25", path), safe=_PLAIN)


def _write_host(endpoint: Endpoint) -> str:
    if endpoint.port == DEFAULT_PORTS[endpoint.scheme]:
        return endpoint.host
    return f"{endpoint.host}:{endpoint.port}"
