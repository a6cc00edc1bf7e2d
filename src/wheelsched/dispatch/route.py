"""Routes over HTTP: what of a target can be made ready once for all its callbacks.

Invariant: the same tenant and target give the same object while anybody holds it. A target whose
URL or headers would be refused today, whatever was right when it was registered, is never called.
"""

import re
from collections.abc import Hashable
from typing import Final
from urllib.parse import quote
from uuid import UUID
from weakref import WeakValueDictionary

from wheelsched import __version__
from wheelsched.core.egress import EgressRules
from wheelsched.core.model import Target
from wheelsched.core.target import (
    DEFAULT_PORTS,
    Endpoint,
    check_headers,
    check_method,
    check_url,
)
from wheelsched.errors import InvalidDocument, InvalidField
from wheelsched.ports import Route

# All of ASCII that a request line may carry (RFC 3986); "%" is looked at apart.
_PLAIN: Final = "!$&'()*+,-./:;=?@_~%"
_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

NOWHERE: Final = Endpoint(scheme="http", host="", port=0, path="/")


class HttpRoute(Route, frozen=True, eq=False, kw_only=True):
    """A route with its URL read, and the beginning of its requests ready."""

    endpoint: Endpoint = NOWHERE
    line: str = ""  # by which its connections are known: of its tenant, to its origin
    head: bytes = b""  # the request line and the headers that all its requests have
    refusal: str | None = None  # why its target cannot be used


class RouteTable:
    """The routes that are in use."""

    def __init__(self, rules: EgressRules) -> None:
        self._rules = rules
        self._routes: WeakValueDictionary[Hashable, HttpRoute] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, tenant_id: UUID, target: Target) -> HttpRoute:
        headers = tuple(sorted(target.headers.items())) if target.headers else ()
        identity = (tenant_id, target.url, target.method, target.batch, headers)
        route = self._routes.get(identity)
        if route is None:
            route = self._routes[identity] = self._make(tenant_id, target)
        return route

    def _make(self, tenant_id: UUID, target: Target) -> HttpRoute:
        try:
            endpoint = check_url(target.url, self._rules)
            check_method(target.method)
            check_headers(target.headers)
        except (InvalidField, InvalidDocument) as error:
            return HttpRoute(
                tenant_id=tenant_id,
                target=target,
                origin=target.url,
                refusal=f"the target cannot be used: {error}",
            )
        return HttpRoute(
            tenant_id=tenant_id,
            target=target,
            origin=endpoint.origin,
            endpoint=endpoint,
            line=f"{tenant_id.hex} {endpoint.origin}",
            head=_write_head(target, endpoint),
        )


def _write_head(target: Target, endpoint: Endpoint) -> bytes:
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
    """A path as it was written, but for what a request line cannot carry."""
    return quote(_LONE_PERCENT.sub("%25", path), safe=_PLAIN)


def _write_host(endpoint: Endpoint) -> str:
    if endpoint.port == DEFAULT_PORTS[endpoint.scheme]:
        return endpoint.host
    return f"{endpoint.host}:{endpoint.port}"
