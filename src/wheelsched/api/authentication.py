"""Who asks: the tenant and the scopes of a request, from its token and from nothing else.

Invariant: a revoked token is refused within `token_cache_ms` everywhere. Without a token, only a
program of this machine is answered, and only where the configuration says so.
"""

import hashlib
from collections import OrderedDict
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from msgspec import Struct

from wheelsched.config import ApiConfig
from wheelsched.errors import (
    OriginForeign,
    ScopeMissing,
    TenantNotFound,
    TokenMissing,
    TokenUnknown,
)
from wheelsched.ports import Caller, Clock, TenantStore
from wheelsched.wire.tenant import Scope

TOKEN_PREFIX: Final = "wst_"  # noqa: S105 - what tokens begin with, so that scanners find them
TOKEN_BYTES: Final = 32
PASSED_ON: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")
FETCH_SITE: Final = "Sec-Fetch-Site"  # set by browsers, which no page can change
OWN_SITES: Final = ("same-origin", "none")
LOOPBACK_ACTOR: Final = "loopback"
ALL_SCOPES: Final = frozenset[str](Scope)
_MAX_TOKEN: Final = 256
_MANY: Final = 10_000


class Access(Struct, frozen=True):
    """What a request may do, in whose name."""

    caller: Caller
    scopes: frozenset[str]
    requests_per_second: int


class _Remembered(NamedTuple):
    until_ns: int
    access: Access | None


def require(scope: Scope, scopes: frozenset[str]) -> None:
    """Refuse a request whose token is not for this."""
    if scope not in scopes:
        raise ScopeMissing(f"this needs a token with the scope '{scope}'")


def digest_of(token: str) -> bytes:
    """What is stored of a token. It has 256 random bits: nothing slower is needed."""
    return hashlib.sha256(token.encode()).digest()


class Authentication:
    """Tokens, looked up in the store and remembered for moments."""

    def __init__(self, tenants: TenantStore, clock: Clock, config: ApiConfig) -> None:
        self._tenants = tenants
        self._clock = clock
        self._config = config
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()

    async def identify(self, request: web.BaseRequest) -> Access:
        """The access that a request has, or the reason why it has none."""
        written = request.headers.get(hdrs.AUTHORIZATION)
        if written is None:
            return await self._identify_neighbour(request)
        kind, _, token = written.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise TokenMissing
        try:
            digest = digest_of(token.strip())
        except UnicodeEncodeError:
            raise TokenUnknown from None
        access = await self._look_up(digest)
        if access is None:
            raise TokenUnknown
        return access

    async def _identify_neighbour(self, request: web.BaseRequest) -> Access:
        if self._config.auth == "required" or self._config.loopback_tenant_id is None:
            raise TokenMissing
        check_neighbour(request)
        caller = Caller(self._config.loopback_tenant_id, LOOPBACK_ACTOR)
        return Access(caller, ALL_SCOPES, self._config.loopback_requests_per_second)

    async def _look_up(self, digest: bytes) -> Access | None:
        now_ns = self._clock.now_ns()
        remembered = self._remembered.get(digest)
        if remembered is not None and now_ns < remembered.until_ns:
            return remembered.access
        access = await self._read(digest)
        self._remembered[digest] = _Remembered(
            now_ns + self._config.token_cache_ms * 1_000_000, access
        )
        self._remembered.move_to_end(digest)
        if len(self._remembered) > _MANY:
            self._remembered.popitem(last=False)
        return access

    async def _read(self, digest: bytes) -> Access | None:
        token = await self._tenants.find_token(digest)
        if token is None or token.revoked_at_us is not None:
            return None
        tenants = await self._tenants.read([token.tenant_id])
        if not tenants:
            raise TenantNotFound
        return Access(
            Caller(token.tenant_id, f"token:{token.name}"),
            frozenset(token.scopes),
            tenants[0].requests_per_second,
        )


def check_neighbour(request: web.BaseRequest) -> None:
    """Refuse what comes from another machine, or from a page that a browser shows.

    A page may lead its own name to this machine, or post a form to it: the names of both differ
    from the ones that a program uses. What a proxy passes on is not of this machine either.
    """
    if any(name in request.headers for name in PASSED_ON):
        raise OriginForeign
    origin = request.headers.get(hdrs.ORIGIN)
    try:
        host = urlsplit(f"//{request.host}").hostname
        is_foreign = origin is not None and urlsplit(origin).netloc != request.host
    except ValueError:  # a bracket without its other half
        raise OriginForeign from None
    is_here = host == "localhost" or _is_loopback(host)
    is_foreign |= request.headers.get(FETCH_SITE, "none") not in OWN_SITES
    if is_foreign or not is_here or not _is_loopback(request.remote):
        raise OriginForeign


@lru_cache(maxsize=256)
def _is_loopback(address: str | None) -> bool:
    try:
        return address is not None and ip_address(address).is_loopback
    except ValueError:
        return False
