"""Checks the URL, the method and the headers of a job's callbacks.

Invariant: every URL parser reads an accepted URL in the same way. It has an explicit scheme, a host
in ASCII, a port, and addresses only in their usual notation. Names are not resolved here: they are
resolved and checked each time a connection is opened.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

import idna
from msgspec import Struct

from wheelsched.core.targets.egress import NO_EXCEPTIONS, EgressRules, explain_forbidden, is_own
from wheelsched.core.targets.sensitive import mask_user_info
from wheelsched.errors import (
    InvalidField,
    InvalidHeader,
    InvalidUrl,
    TargetForbidden,
    UnknownChoice,
    quoted,
)
from wheelsched.values.fields import display_value, escape_pointer
from wheelsched.values.problem_list import ProblemList

URL_POINTER: Final = "/target/url"
METHOD_POINTER: Final = "/target/method"
HEADERS_POINTER: Final = "/target/headers"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}  # one for each supported scheme
METHODS: Final = ("POST", "PUT", "PATCH")  # the methods with a meaningful body
LOCALHOST: Final = ("127.0.0.1", "::1")
MAX_URL: Final = 2_048
MAX_HOST: Final = 253
MAX_HEADERS: Final = 32
MAX_HEADER_NAME: Final = 64
MAX_HEADER_VALUE: Final = 4_096

_EXAMPLE: Final = "e.g. https://example.org/hooks/report"

# Some parsers end a request line at a space or a control character, and some read a backslash as a
# slash.
_AMBIGUOUS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ud800-\udfff]")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]*))?")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

# Services that could read a request as commands, or that do not speak HTTP.
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
    """A parsed URL."""

    scheme: str
    host: str  # ASCII and lower case; an IPv6 address in brackets
    port: int
    path: str  # with the query, unchanged

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"


def check_url(value: object, rules: EgressRules = NO_EXCEPTIONS) -> Endpoint:
    """Parse a URL. Raises `InvalidUrl` or `TargetForbidden`."""
    if not isinstance(value, str):
        raise _invalid(f"{display_value(value)} is not a valid URL; write text, {_EXAMPLE}")
    if len(value) > MAX_URL:
        raise _invalid(f"the URL has {len(value):,} characters; at most {MAX_URL:,} are allowed")
    if ambiguous := _AMBIGUOUS.search(value):
        raise _invalid(
            f"the URL contains the character {ambiguous[0]!r}; percent-encode it, a space as %20"
        )
    parts = _URL.fullmatch(value)
    if parts is None:
        shown_url = quoted(mask_user_info(value))
        raise _invalid(f"{shown_url} is not an absolute URL; expected {_EXAMPLE}")
    scheme = parts[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise _invalid(f"the scheme {quoted(scheme)} is not valid; must be one of: http, https")
    host, port = _read_authority(parts[2])
    endpoint = Endpoint(
        scheme=scheme,
        host=_read_host(host, rules),
        port=DEFAULT_PORTS[scheme] if port is None else _read_port(port),
        path=parts[3] if parts[3].startswith("/") else f"/{parts[3]}",
    )
    if endpoint.port in _PORTS:
        raise _forbidden(
            f"port {endpoint.port} is not allowed, because it is the port of "
            f"{_PORTS[endpoint.port]}; use another one for the worker, e.g. 443 or 8080"
        )
    if _is_own(endpoint, rules):
        raise _forbidden(
            f"wheelsched itself listens on {endpoint.host}:{endpoint.port}; "
            "use the address of a worker"
        )
    return endpoint


def _is_own(endpoint: Endpoint, rules: EgressRules) -> bool:
    """Whether a URL names one of our own listeners, as far as is known without a DNS lookup."""
    host = endpoint.host.strip("[]").removesuffix(".")
    if host.split(".")[-1] == "localhost":
        return any(is_own(ip_address(each), endpoint.port, rules.own) for each in LOCALHOST)
    try:
        return is_own(ip_address(host), endpoint.port, rules.own)
    except ValueError:  # a name; its address is checked when a connection is opened
        return False


def check_method(value: object) -> None:
    """Refuse a method that cannot carry a payload."""
    if value not in METHODS:
        raise UnknownChoice(
            f"{display_value(value)} is not valid; must be one of: {', '.join(METHODS)}",
            pointer=METHOD_POINTER,
        )


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse invalid headers, and headers that wheelsched sets itself."""
    if len(headers) > MAX_HEADERS:
        raise InvalidHeader(
            f"there are {len(headers):,} headers; at most {MAX_HEADERS} are allowed",
            pointer=HEADERS_POINTER,
        )
    problems: list[InvalidField] = []
    seen: set[str] = set()
    for name, value in headers.items():
        problem = _problem_of(name, value)
        if problem is None and name.lower() in seen:
            problem = f"{quoted(name)} is a duplicate; header names are case-insensitive"
        if problem is not None:
            pointer = f"{HEADERS_POINTER}/{escape_pointer(name[:MAX_HEADER_NAME])}"
            problems.append(InvalidHeader(problem, pointer=pointer))
        seen.add(name.lower())
    if problems:
        ProblemList(problems).raise_single_or_all()


def _problem_of(name: str, value: str) -> str | None:
    if len(name) > MAX_HEADER_NAME or not _HEADER_NAME.fullmatch(name):
        return f"{quoted(name)} is not a valid header name; use letters, digits and '-'"
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
        return f"{quoted(name)} is reserved, because wheelsched sets it itself; use another name"
    if len(value) > MAX_HEADER_VALUE:
        return f"the value has {len(value):,} characters; at most {MAX_HEADER_VALUE:,} are allowed"
    if not _HEADER_VALUE.fullmatch(value):
        return "a value must be printable ASCII, and must not begin or end with a space"
    return None


def _read_authority(authority: str) -> tuple[str, str | None]:
    if "@" in authority:
        raise _invalid(
            "the URL contains a user name; send credentials in target.headers instead, e.g. as "
            "authorization"
        )
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or not parts[1]:
        raise _invalid(f"{quoted(authority)} is not a valid host or host:port; write {_EXAMPLE}")
    return parts[1], parts[2] or None


def _read_port(value: str) -> int:
    if len(value) > 5 or not 1 <= int(value) <= 65_535:
        raise _invalid(f"port {quoted(value)} is out of range; expected 1 to 65535")
    return int(value)


def _read_host(value: str, rules: EgressRules) -> str:
    if value.startswith("["):
        return _read_ipv6(value, rules)
    host = _read_name(value)
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _read_ipv4(host, rules)
    if len(host) > MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise _invalid(f"{quoted(value)} is not a valid host name")
    if labels[-1] == "localhost" and not rules.allows_loopback:
        raise _forbidden(_not_allowed(value, "a loopback address"))
    return host


def _read_name(value: str) -> str:
    """The ASCII form of a host name, as DNS knows it (IDNA)."""
    if value.isascii():
        return value.lower()
    try:
        return idna.encode(value, uts46=True).decode("ascii").lower()
    except idna.IDNAError as error:
        raise _invalid(f"{quoted(value)} is not a valid host name: {error}") from error


def _read_ipv4(host: str, rules: EgressRules) -> str:
    try:
        address = IPv4Address(host)
    except ValueError as error:
        raise _invalid(
            f"{quoted(host)} is not a valid IPv4 address; write four decimal numbers without "
            "leading zeros, e.g. 198.51.100.7"
        ) from error
    _check_address(address, rules)
    return str(address)


def _read_ipv6(value: str, rules: EgressRules) -> str:
    try:
        address = IPv6Address(value[1:-1])
    except ValueError as error:
        raise _invalid(f"{quoted(value)} is not a valid IPv6 address in brackets") from error
    if address.scope_id is not None:
        raise _invalid(f"{quoted(value)} contains a zone id, which is only valid on one machine")
    _check_address(address, rules)
    return f"[{address.compressed}]"


def _check_address(address: IPv4Address | IPv6Address, rules: EgressRules) -> None:
    what = explain_forbidden(address, rules)
    if what is not None:
        raise _forbidden(_not_allowed(str(address), what))


def _not_allowed(host: str, what: str) -> str:
    return (
        f"{quoted(host)} is {what}; use a host on the public network, or ask the operator of "
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
