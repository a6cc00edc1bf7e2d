"""The addresses that this installation listens on, to keep callbacks away from them."""

import socket

from msgspec.structs import replace

from wheelsched.config import ApiConfig, EgressConfig
from wheelsched.core.targets.egress import OwnListener, listener_at


def with_own_listener(egress: EgressConfig, host: str, port: int) -> EgressConfig:
    """The egress rules that also forbid this listener; port 0 is not known yet."""
    return replace(egress, own=(*egress.own, *listeners_on(host, port))) if port else egress


def with_api_listeners(egress: EgressConfig, api: ApiConfig) -> EgressConfig:
    """The egress rules that also forbid all listeners of the API."""
    egress = with_own_listener(egress, api.host, api.port)
    return egress if api.grpc is None else with_own_listener(egress, api.grpc.host, api.grpc.port)


def listeners_on(host: str, port: int) -> tuple[OwnListener, ...]:
    """The listeners that a server opens for a host, which may resolve to several addresses."""
    if not host:
        return (OwnListener(None, port),)
    if (listener := listener_at(host, port)) is not None:
        return (listener,)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()  # nothing can listen there either
    addresses = sorted({str(sockaddr[0]) for *_, sockaddr in found})
    return tuple(filter(None, (listener_at(address, port) for address in addresses)))
