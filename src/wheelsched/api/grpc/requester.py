"""The origin of a gRPC call, as authentication reads it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from multidict import CIMultiDict

# A call does not reveal the host that it names. For HTTP, the host reveals web pages that resolve
# their own name to this machine; they cannot speak HTTP/2 without TLS.
HOST: Final = "localhost"


class GrpcRequester:
    """The metadata and the peer of a call."""

    def __init__(self, metadata: Iterable[tuple[str, Any]] | None, peer: str) -> None:
        text = [(key, value) for key, value in metadata or () if isinstance(value, str)]
        self.headers: Mapping[str, str] = CIMultiDict(text)
        self.host = HOST
        self.remote = address_of(peer)


def address_of(peer: str) -> str | None:
    """The IP address of a peer such as `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    host, _, _ = rest.rpartition(":")
    return host.strip("[]").partition("%")[0]
