"""Decides which addresses a callback may reach: all public ones, and those that the rules allow.

Invariant: the decision depends only on the address, however it was written or resolved. If an
address embeds another (IPv4 in IPv6, in any form), both must be allowed. Addresses that can never
be a worker are forbidden, whatever the rules allow.
"""

from collections.abc import Callable, Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from wheelsched.errors import InvalidNetwork, quoted

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

LOOPBACK: Final = ("127.0.0.0/8", "::1/128")  # for `read_rules`


class _Range(NamedTuple):
    network: Network
    name: str


def _ranges(named: dict[str, str]) -> tuple[_Range, ...]:
    return tuple(_Range(ip_network(network), name) for network, name in named.items())


# Addresses that return the credentials of the machine itself, or that are not a single machine.
_NEVER: Final = _ranges(
    {
        "169.254.169.254/32": "a metadata address",  # AWS, Azure, Google, DigitalOcean and others
        "169.254.170.0/24": "a metadata address",  # AWS, for containers and their identities
        "169.254.0.23/32": "a metadata address",  # Tencent
        "100.100.100.200/32": "a metadata address",  # Alibaba
        "168.63.129.16/32": "a metadata address",  # Azure, within the public range
        "192.0.0.192/32": "a metadata address",  # Oracle
        "fd00:ec2::/32": "a metadata address",  # AWS
        "fd20:ce::254/128": "a metadata address",  # Google
        "fd00:c1::a9fe:a9fe/128": "a metadata address",  # Oracle
        "fe80::a9fe:a9fe/128": "a metadata address",  # OpenStack
        "0.0.0.0/8": "an unspecified address",
        "::/128": "an unspecified address",
        "224.0.0.0/4": "a multicast address",
        "ff00::/8": "a multicast address",
        "255.255.255.255/32": "a broadcast address",
    }
)

# Forbidden unless the rules allow the network.
_FORBIDDEN: Final = _ranges(
    {
        "127.0.0.0/8": "a loopback address",
        "::1/128": "a loopback address",
        "10.0.0.0/8": "a private address",
        "172.16.0.0/12": "a private address",
        "192.168.0.0/16": "a private address",
        "fc00::/7": "a private address",
        "fec0::/10": "a private address",  # site-local; deprecated, but some still route it
        "169.254.0.0/16": "a link-local address",
        "fe80::/10": "a link-local address",
        "100.64.0.0/10": "a carrier-grade NAT address",
        "64:ff9b::/96": "a NAT64 address",
        "64:ff9b:1::/48": "a NAT64 address",
        "2002::/16": "a 6to4 address",
        "192.88.99.0/24": "a 6to4 address",
        "2001::/32": "a Teredo address",
        "::/96": "an IPv4-compatible address",
        "192.0.2.0/24": "a documentation address",
        "198.51.100.0/24": "a documentation address",
        "203.0.113.0/24": "a documentation address",
        "2001:db8::/32": "a documentation address",
        "3fff::/20": "a documentation address",
        "198.18.0.0/15": "a benchmarking address",
        "2001:2::/48": "a benchmarking address",
        "192.0.0.0/24": "a reserved address",
        "240.0.0.0/4": "a reserved address",
        "2001::/23": "a reserved address",
    }
)

_GLOBAL_IPV6: Final = IPv6Network("2000::/3")  # all globally routed addresses
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")  # read as a /96, its usual use
_COMPATIBLE: Final = IPv6Network("::/96")
_TRANSLATED: Final = IPv6Network("::ffff:0:0:0/96")
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)  # interface ids that embed an IPv4 address


class OwnListener(Struct, frozen=True):
    """A listener of this installation. Without an address it listens on all interfaces."""

    address: str | None
    port: int


class EgressRules(Struct, frozen=True):
    """The networks that are allowed beside the public one, and our own listeners, which are not.

    A callback to our own listener would come from a machine that the listener may trust.
    """

    allow: tuple[Network, ...] = ()
    own: tuple[OwnListener, ...] = ()

    @property
    def allows_loopback(self) -> bool:
        """Whether `localhost` is allowed as a host."""
        return any(
            explain_forbidden(ip_address(host), self) is None for host in ("127.0.0.1", "::1")
        )


NO_EXCEPTIONS: Final = EgressRules()


def listener_at(host: str, port: int) -> OwnListener | None:
    """The listener on an address; None if the host is a name."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return None
    return OwnListener(None if address.is_unspecified else str(address), port)


def read_listener(url: str) -> OwnListener | None:
    """The listener at a URL; None if the URL has no address and port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return None if port is None or parts.hostname is None else listener_at(parts.hostname, port)


def read_rules(allow: Iterable[str]) -> EgressRules:
    """The rules that allow these networks in CIDR notation. May raise `InvalidNetwork`."""
    return EgressRules(tuple(_read_network(text) for text in allow))


def is_own(
    address: Address,
    port: int,
    own: Iterable[OwnListener],
    is_local: Callable[[Address], bool] = attrgetter("is_loopback"),
) -> bool:
    """Whether one of our own listeners is at this address and port.

    `is_local` says which addresses belong to this machine. The default knows only loopback ones.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(
        is_local(address) if listener.address is None else address == ip_address(listener.address)
        for listener in own
        if listener.port == port
    )


def explain_forbidden(address: Address, rules: EgressRules = NO_EXCEPTIONS) -> str | None:
    """Why an address is forbidden, e.g. "a private address"; None if it is allowed."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return explain_forbidden(address.ipv4_mapped, rules)  # the kernel connects by IPv4
    name = _name_in(_NEVER, address)
    if name is not None:
        return name
    if not any(address in network for network in rules.allow):
        name = _name_in(_FORBIDDEN, address)
        if name is not None:
            return name
        if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
            return "a reserved address"
    for embedded in _embedded(address):
        name = explain_forbidden(embedded, rules)
        if name is not None:
            return name
    return None


def _name_in(ranges: tuple[_Range, ...], address: Address) -> str | None:
    for network, name in ranges:
        if address in network:
            return name
    return None


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address embeds."""
    if isinstance(address, IPv4Address):
        return ()
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo  # the server and the client behind it
    last = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _COMPATIBLE:
        return () if address.is_loopback else (last,)
    if any(address in network for network in (_NAT64, _NAT64_LOCAL, _TRANSLATED)):
        return (last,)
    return (last,) if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP else ()


def _read_network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidNetwork(
            f"{quoted(text)} is not a valid network: {error}; expected CIDR, e.g. 10.0.0.0/8"
        ) from error
