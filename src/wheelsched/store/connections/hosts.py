"""The hosts that a database URL names.

Invariant: of several hosts, each is listed with its port. A URL with one host or none is left to
asyncpg, which also reads service files.
"""

import os
from itertools import repeat
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

DEFAULT_PORT = "5432"


class Host(NamedTuple):
    """The address of a server: a name, an IP address or the directory of a unix socket."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


def read_hosts(url: str) -> list[Host]:
    """The hosts of a URL that names several, in its order; otherwise none.

    A list that asyncpg would refuse has no hosts either, so that asyncpg says what is wrong.
    """
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    in_authority = parts.netloc.rpartition("@")[2]
    listed = in_authority or options.get("host", [os.environ.get("PGHOST", "")])[-1]
    names = listed.split(",")
    default_ports = [os.environ.get("PGPORT", DEFAULT_PORT)]
    ports = (default_ports if in_authority else options.get("port", default_ports))[-1].split(",")
    if len(names) < 2 or "" in names or len(ports) not in (1, len(names)):
        return []
    defaults = repeat(ports[0]) if len(ports) == 1 else ports
    return [
        _read_host(unquote(name) if in_authority else name, default)
        for name, default in zip(names, defaults, strict=False)
    ]


def _read_host(text: str, default_port: str) -> Host:
    """Reads `name`, `name:port`, `[::1]:port` or `/directory`."""
    if text.startswith("/"):
        return Host(text, int(default_port))
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
        return Host(name, int(port.removeprefix(":") or default_port))
    name, _, port = text.partition(":")
    return Host(name, int(port or default_port))
