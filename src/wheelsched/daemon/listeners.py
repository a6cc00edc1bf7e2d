"""Where the processes of an installation listen, for rules that keep callbacks from there."""

import socket

from msgspec.structs import replace

from wheelsched.config import EgressConfig
from wheelsched.core.egress import OwnListener, listener_at


def with_own(egress: EgressConfig, host: str, port: int) -> EgressConfig:
    """The rules, which also refuse a listener of ours; port 0 is not known yet."""
    return replace(egress, own=(*egress.own, *listeners_on(host, port))) if port else egress


def listeners_on(host: str, port: int) -> tuple[OwnListener, ...]:
    """The listeners that a server opens for a host, which may be a name with several addresses."""
    if not host:
        return (OwnListener(None, port),)
    if (listener := listener_at(host, port)) is not None:
        return (listener,)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()  # then nothing can listen there either
    addresses = sorted({str(sockaddr[0]) for *_, sockaddr in found})
    return tuple(filter(None, (listener_at(address, port) for address in addresses)))
