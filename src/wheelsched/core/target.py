"""Targets: URL, method and headers of a job's callbacks, as users write them.

Invariant: what is accepted has one meaning to every reader of URLs: a scheme, a host in ASCII and a
port, spelled out, and no spelling of an address but the usual one. Names are not looked up here:
where a name leads is decided when a connection is opened, each time.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

import idna
from msgspec import Struct

from wheelsched.core.egress import NO_EXCEPTIONS, EgressRules, explain_forbidden, is_own
from wheelsched.core.fields import escaped, shown
from wheelsched.core.problem_list import ProblemList
from wheelsched.core.sensitive import mask_user_info
from wheelsched.errors import (
    InvalidField,
    InvalidHeader,
    InvalidUrl,
    TargetForbidden,
    UnknownChoice,
    quoted,
)

URL_POINTER: Final = "/target/url"
METHOD_POINTER: Final = "/target/method"
HEADERS_POINTER: Final = "/target/headers"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}  # of the schemes that there are
METHODS: Final = ("POST", "PUT", "PATCH")  # those whose requests have a body that means something
LOCALHOST: Final = ("127.0.0.1", "::1")
MAX_URL: Final = 2_048
MAX_HOST: Final = 253
MAX_HEADERS: Final = 32
MAX_HEADER_NAME: Final = 64
MAX_HEADER_VALUE: Final = 4_096

_EXAMPLE: Final = "such as https://example.org/hooks/report"

# A space or a control character ends a request line for some readers and not for others, and a
# backslash is a slash to some.
_AMBIGUOUS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ud800-\udfff]")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]*))?")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

# Services that read a request as commands of their own, or that nobody means to call by HTTP.
_PORTS: Final[Mapping[int, str]] = {
    21: "FTP",
    22: "SSH",
    23: "telnet",
    25: "SMTP",
    53: "DNS",
    110: "POP3",
    111: "portmap",
    135: "RPC",
    139: "NetBIOS",
    143: "IMAP",
    389: "LDAP",
    445: "SMB",
    465: "SMTP",
    587: "SMTP",
    636: "LDAP",
    993: "IMAP",
    995: "POP3",
    2049: "NFS",
    2375: "Docker",
    2379: "etcd",
    3306: "MySQL",
    5432: "Postgres",
    6379: "Redis",
    6667: "IRC",
    10250: "Kubernetes",
    11211: "memcached",
    27017: "MongoDB",
}

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_RESERVED: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "te",
        "traceparent",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_RESERVED_PREFIXES: Final = ("proxy-", "webhook-", "wheelsched-")


class Endpoint(Struct, frozen=True, kw_only=True):
    """A URL, read: where its requests go."""

    scheme: str
    host: str  # ASCII and lower case; an IPv6 address in brackets
    port: int
    path: str  # with the query, as it was written

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"


def check_url(written: object, rules: EgressRules = NO_EXCEPTIONS) -> Endpoint:
    """The endpoint that a URL names, or `InvalidUrl` or `TargetForbidden`."""
    if not isinstance(written, str):
        raise _invalid(f"{shown(written)} is not a URL; write text {_EXAMPLE}")
    if len(written) > MAX_URL:
        raise _invalid(f"the URL has {len(written):,} characters; it may have {MAX_URL:,}")
    if ambiguous := _AMBIGUOUS.search(written):
        raise _invalid(
            f"the URL has the character {ambiguous[0]!r}; percent-encode it, a space as %20"
        )
    parts = _URL.fullmatch(written)
    if parts is None:
        shown_url = quoted(mask_user_info(written))
        raise _invalid(f"{shown_url} is not an absolute URL; write one {_EXAMPLE}")
    scheme = parts[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise _invalid(f"the scheme {quoted(scheme)} is not one of 'http' and 'https'")
    host, port = _read_authority(parts[2])
    endpoint = Endpoint(
        scheme=scheme,
        host=_read_host(host, rules),
        port=DEFAULT_PORTS[scheme] if port is None else _read_port(port),
        path=parts[3] if parts[3].startswith("/") else f"/{parts[3]}",
    )
    if endpoint.port in _PORTS:
        raise _forbidden(
            f"port {endpoint.port} is that of {_PORTS[endpoint.port]}; "
            "let the worker listen on another one, such as 443 or 8080"
        )
    if _is_own(endpoint, rules):
        raise _forbidden(
            f"wheelsched itself listens on {endpoint.host}:{endpoint.port}; "
            "name the address of a worker"
        )
    return endpoint


def _is_own(endpoint: Endpoint, rules: EgressRules) -> bool:
    """Whether a URL names one of our own listeners, as far as it can be known without a lookup."""
    host = endpoint.host.strip("[]").removesuffix(".")
    if host.split(".")[-1] == "localhost":
        return any(is_own(ip_address(each), endpoint.port, rules.own) for each in LOCALHOST)
    try:
        return is_own(ip_address(host), endpoint.port, rules.own)
    except ValueError:  # a name: the address that it leads to is checked at the socket
        return False


def check_method(written: object) -> None:
    """Refuses a method that cannot carry a payload."""
    if written not in METHODS:
        raise UnknownChoice(
            f"{shown(written)} is not one of {', '.join(map(repr, METHODS))}",
            pointer=METHOD_POINTER,
        )


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuses headers that a request could not carry, or that are wheelsched's own."""
    if len(headers) > MAX_HEADERS:
        raise InvalidHeader(
            f"there are {len(headers):,} headers; there may be {MAX_HEADERS}",
            pointer=HEADERS_POINTER,
        )
    problems: list[InvalidField] = []
    seen: set[str] = set()
    for name, value in headers.items():
        problem = _problem_of(name, value)
        if problem is None and name.lower() in seen:
            problem = f"{quoted(name)} is there twice; upper and lower case make no difference"
        if problem is not None:
            pointer = f"{HEADERS_POINTER}/{escaped(name[:MAX_HEADER_NAME])}"
            problems.append(InvalidHeader(problem, pointer=pointer))
        seen.add(name.lower())
    if problems:
        ProblemList(problems).raise_as_found()


def _problem_of(name: str, value: str) -> str | None:
    if len(name) > MAX_HEADER_NAME or not _HEADER_NAME.fullmatch(name):
        return f"{quoted(name)} is not the name of a header; letters, digits and '-' are right"
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
        return f"{quoted(name)} is a header that wheelsched sets itself; use another name"
    if len(value) > MAX_HEADER_VALUE:
        return f"the value has {len(value):,} characters; it may have {MAX_HEADER_VALUE:,}"
    if not _HEADER_VALUE.fullmatch(value):
        return "a value is printable ASCII, and neither begins nor ends with a space"
    return None


def _read_authority(authority: str) -> tuple[str, str | None]:
    if "@" in authority:
        raise _invalid(
            "the URL has a user name; send credentials as a header, in target.headers, "
            "such as authorization"
        )
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or not parts[1]:
        raise _invalid(f"{quoted(authority)} is not a host, or a host and a port; write {_EXAMPLE}")
    return parts[1], parts[2] or None


def _read_port(written: str) -> int:
    if len(written) > 5 or not 1 <= int(written) <= 65_535:
        raise _invalid(f"port {quoted(written)} is out of range; 1 to 65535 is right")
    return int(written)


def _read_host(written: str, rules: EgressRules) -> str:
    if written.startswith("["):
        return _read_ipv6(written, rules)
    host = _read_name(written)
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _read_ipv4(host, rules)
    if len(host) > MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise _invalid(f"{quoted(written)} is not the name of a host")
    if labels[-1] == "localhost" and not rules.allows_loopback:
        raise _forbidden(_not_allowed(written, "a loopback address"))
    return host


def _read_name(written: str) -> str:
    """A host as DNS knows it: what looks like ASCII to people becomes it."""
    if written.isascii():
        return written.lower()
    try:
        return idna.encode(written, uts46=True).decode("ascii").lower()
    except idna.IDNAError as error:
        raise _invalid(f"{quoted(written)} is not the name of a host: {error}") from error


def _read_ipv4(host: str, rules: EgressRules) -> str:
    try:
        address = IPv4Address(host)
    except ValueError as error:
        raise _invalid(
            f"the host {quoted(host)} reads as a number; write an address as four decimal numbers, "
            "such as 198.51.100.7, without leading zeros"
        ) from error
    _check_address(address, rules)
    return str(address)


def _read_ipv6(written: str, rules: EgressRules) -> str:
    try:
        address = IPv6Address(written[1:-1])
    except ValueError as error:
        raise _invalid(f"{quoted(written)} is not an IPv6 address in brackets") from error
    if address.scope_id is not None:
        raise _invalid(f"{quoted(written)} names a zone, which means nothing on another machine")
    _check_address(address, rules)
    return f"[{address.compressed}]"


def _check_address(address: IPv4Address | IPv6Address, rules: EgressRules) -> None:
    what = explain_forbidden(address, rules)
    if what is not None:
        raise _forbidden(_not_allowed(str(address), what))


def _not_allowed(host: str, what: str) -> str:
    return (
        f"{quoted(host)} is {what}; name a host on the public network, or ask whoever runs "
        "wheelsched to allow the network with --egress-allow"
    )


def _invalid(message: str) -> InvalidUrl:
    return InvalidUrl(message, pointer=URL_POINTER)


def _forbidden(message: str) -> TargetForbidden:
    return TargetForbidden(message, pointer=URL_POINTER)


def is_same_origin(url: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    try:
        return _origin(urlsplit(url)) == _origin(urlsplit(other))
    except ValueError:  # not a URL
        return False


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or DEFAULT_PORTS.get(url.scheme)
